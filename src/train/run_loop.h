// SPDX-License-Identifier: MIT
// The loop that every kind of training shares: steps, health, metrics, validation, checkpoints,
// stops.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/optimizer.h"

namespace clearhead {

struct RunLoopOptions {
  std::int64_t steps = 0;
  double tokens_per_step = 0.0;
  std::int64_t eval_every = 0;        // steps; 0: only at the end
  std::int64_t checkpoint_every = 0;  // steps; 0: every checkpoint_seconds
  double checkpoint_seconds = 300.0;
  bool resume = false;
};

struct LoopStep {
  double loss = 0.0;
  double gradient_norm = 0.0;
  double lr = 0.0;
  Json metrics;  // the line of metrics.jsonl, without "step" and "tokens_per_second"
};

// What differs between kinds of training.
struct RunLoopParts {
  Json settings;  // whatever changes the numbers of a run; a resumed one must agree
  // Gradients of step `step` into the optimiser. The loop decides whether they reach the weights.
  std::function<LoopStep(std::int64_t step)> gradients;
  // Validation of the weights as they are, added to the line. True: write a checkpoint with it.
  std::function<bool(Json& line)> evaluate;
  // Numbers that a checkpoint must remember, and their way back (`source` names the file).
  std::function<std::vector<double>()> state = {};
  std::function<void(const std::vector<double>& values, const std::string& source)> restore = {};
  std::function<void(std::int64_t steps_done, double tokens_per_second)> on_step = {};
  std::function<bool()> should_stop = {};  // asked after every step
};

struct RunOutcome {
  bool finished = false;  // false: stopped by should_stop, checkpoint written
  std::int64_t step = 0;
  double seconds = 0.0;
  double tokens_per_second = 0.0;
};

// Throws Error on a NaN or a loss explosion, naming step and cause, with the last good checkpoint
// in place. A finished run's checkpoints stay until RemoveCheckpoints(CheckpointFolder(out)): its
// model must be saved first.
RunOutcome RunLoop(const RunLoopOptions& options, const RunLoopParts& parts, Optimizer& optimizer,
                   const std::filesystem::path& out);

// Throws Error where `out` holds what another run left, a checkpoint or its metrics, and says how
// to go on with it or start anew. RunLoop refuses that by itself; this is for asking before any
// work.
void RefuseAnotherRun(const std::filesystem::path& out);

inline std::filesystem::path CheckpointFolder(const std::filesystem::path& out) {
  return out / "checkpoint";
}

}  // namespace clearhead
