// SPDX-License-Identifier: MIT
// The training loop: steps, validation, metrics, checkpoints, and what happens when something goes
// wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

#include "train/optimizer.h"
#include "train/schedule.h"
#include "train/step.h"
#include "train/training_run.h"

namespace clearhead {

struct TrainOptions {
  StepShape shape;
  Schedule schedule;  // schedule.total steps
  OptimizerOptions optimizer;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> starts = {};  // where samples may start; empty: anywhere
  RunOptions run;                         // eval_every 0: only at the end
  // The start follows from the configuration and the seed, so a resumed run need not be held to its
  // bits, which another CPU may draw a little differently.
  bool drawn_start = false;
};

struct TrainProgress {
  std::int64_t step, steps;
  double loss;
  std::optional<double> valid_loss;  // last known
  double lr, gradient_norm, tokens_per_second;
};

struct TrainCallbacks {
  std::function<void(const TrainProgress&)> on_step = {};
  std::function<bool()> should_stop = {};  // asked after every step
};

struct TrainResult {
  bool finished = false;  // false: stopped by should_stop, checkpoint written
  std::int64_t step = 0;
  double loss = 0.0;  // of the last step
  std::optional<double> valid_loss;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
};

// Trains from `start` on `train` tokens. In `out`: metrics.jsonl, checkpoints while it runs; when
// finished, `out` holds the model (config.json, model.safetensors) and the checkpoints are gone.
// Throws Error where the shape, the tokens or what is in `out` make a run impossible, and on a NaN
// or a loss explosion, naming step and cause, with the last good checkpoint in place.
TrainResult Train(const Model& start, std::span<const std::int32_t> train,
                  std::span<const std::int32_t> valid, const TrainOptions& options,
                  const std::filesystem::path& out, const TrainCallbacks& callbacks);

}  // namespace clearhead
