// SPDX-License-Identifier: MIT
// Training a transcoder for a model that stays as it is (features/transcoder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/activations.h"
#include "train/training_run.h"
#include "train/transcoder_data.h"
#include "train/transcoder_step.h"

namespace clearhead {

struct TranscoderOptions {
  TranscoderKind kind = TranscoderKind::kCrossLayer;
  std::int64_t features = 4096;  // of each layer
  TranscoderStepOptions step;    // which features fire, and how many
  TranscoderDataOptions data;    // windows, rows of a step; its seed is the run's
  std::int64_t steps = 0;
  double lr = 0.0;  // peak; 0: 3e-3 sqrt(4096 / features)
  // A feature is dead when it has not fired for this many tokens.
  std::int64_t dead_after = 100'000;
  std::string model_name = {};  // for people, kept with the features
  DType dtype = DType::kF32;    // of the files
  RunOptions run;
};

struct TranscoderQuality {  // on validation text, with the thresholds that are saved
  std::int64_t rows = 0;
  std::vector<double> unexplained, l0;  // per layer
};

struct TranscoderProgress {
  std::int64_t step = 0, steps = 0;
  TranscoderMeasure measure;
  double dead_share = 0.0, lr = 0.0, tokens_per_second = 0.0;
};

struct TranscoderCallbacks {
  std::function<void(const TranscoderProgress&)> on_step = {};
  std::function<bool()> should_stop = {};
};

struct TranscoderResult {
  bool finished = false;
  std::int64_t step = 0;
  TranscoderMeasure last;
  double dead_share = 0.0;
  std::optional<TranscoderQuality> valid;
  double seconds = 0.0, tokens_per_second = 0.0;
};

// Leaves the features in `out` in circuit-tracer's layout. metrics.jsonl, checkpoints, resume, NaN
// stop and interruption are those of Train. `valid` may be empty.
TranscoderResult TrainTranscoder(const Model& model, std::span<const std::int32_t> train,
                                 std::span<const std::int32_t> valid,
                                 const TranscoderOptions& options, const std::filesystem::path& out,
                                 const TranscoderCallbacks& callbacks);

// What training takes beside the model, for --dry-run.
std::vector<MemoryItem> TranscoderMemoryPlan(const ModelConfig& config,
                                             const TranscoderOptions& options);

}  // namespace clearhead
