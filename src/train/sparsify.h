// SPDX-License-Identifier: MIT
// Sparse post-training: fewest open gates at the dense model's own loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "train/multiplier.h"
#include "train/rate_probe.h"
#include "train/sparse_quality.h"
#include "train/sparsify_step.h"
#include "train/train.h"

namespace clearhead {

struct SparsifyOptions {
  StepShape shape;
  std::int64_t steps = 2000;
  double lr = 1e-3;                    // peak; of queries and keys where rest_lr is given
  std::optional<double> rest_lr = {};  // of everything else
  std::int64_t probe_steps = 0;        // > 0: rest_lr is what a probe of as many steps finds
  std::int64_t warmup = 30;            // steps
  double decay_fraction = 0.4;         // the last part of the run, over which the rate falls to 0
  float gate_bias = 2.0f;              // positive: gates start mostly open
  bool bias_by_head = false;           // each head's bias starts there and is trained
  // Where to start instead of the dense weights: a sparse model made of them, with its own gates.
  std::optional<Model> from = {};
  double tolerance = 0.01;  // nats above the dense validation loss that are accepted
  // At a useful rate the noise of training alone costs more than the tolerance, so the constraint
  // is looser while the rate is high and closes as it decays:
  //   slack_t = slack lr_t / lr + push max(0, 1 - 2 t / steps)
  double slack = 0.06;
  double push = 0.2;
  float distill = 1.0f;
  bool own_text = false;     // fit and constraint are KL(dense || sparse) alone
  bool concentrate = false;  // few heads with many open gates rather than many with few
  MultiplierOptions multiplier;
  // The last share of the steps, in which gates have no noise: the weights settle in what is
  // measured and kept, and the constraint looks at that.
  double settle = 0.0;
  bool hold = false;            // keep the penalty up where opening gates would not lower the loss
  bool cut_vocabulary = false;  // steps see the tokens of the training text alone
  bool sweep_bias = false;  // at the end choose the bias, on a half of the validation text that no
                            // figure is quoted of
  OptimizerOptions optimizer{.beta2 = 0.98f, .weight_decay = 0.0f};  // and the part that is trained
  std::uint64_t seed = 0;
  std::vector<std::int64_t> starts = {};
  const StoredLogits* stored = nullptr;  // the teacher's; the training tokens are then its ids
  RunOptions run;                        // eval_every 0: twenty times in the run
};

struct SparsifyProgress {
  std::int64_t step = 0, steps = 0;
  SparsifyStepResult result;
  double beta = 0.0, slack = 0.0, lr = 0.0, tokens_per_second = 0.0;
  double target = 0.0;                   // dense validation loss + tolerance
  std::optional<SparseQuality> quality;  // last known
  std::optional<SparseQuality> best;     // feasible, fewest edges
  const Model* model = nullptr;          // as it is now, where `quality` is of this very step
};

struct SparsifyCallbacks {
  std::function<void(const std::vector<SweepPoint>&)> on_untrained = {};
  std::function<void(const RateProbe&)> on_probe = {};
  std::function<void(const SparsifyProgress&)> on_step = {};
  std::function<bool()> should_stop = {};
};

struct SparsifyResult {
  bool finished = false;
  std::int64_t step = 0;
  double dense_loss = 0.0;            // validation
  SparseQuality last;                 // at the end of training
  std::optional<SparseQuality> best;  // what was saved; none: the tolerance was never met
  std::vector<SweepPoint> untrained;  // the dense weights with gates
  std::optional<RateProbe> probe;
  std::vector<SweepPoint> swept;  // what was saved with other biases, on the windows apart
  double gate_bias = 0.0;         // of what was saved
  double seconds = 0.0;
  double tokens_per_second = 0.0;
};

// Folder in `out` of the model as it was at the end, where no model met the tolerance.
inline constexpr std::string_view kLastModel = "last";

// The dense model with gates.
Model GatedCopy(const Model& dense, float bias, bool bias_by_head);

// What is trained, as it is at the start.
Model StartOf(const Model& dense, const SparsifyOptions& options);

// Trains a gated copy of `dense` and leaves the best feasible model in `out` (config.json,
// model.safetensors), the last one in a folder there if none is. metrics.jsonl, checkpoints,
// resume, NaN stop and interruption are those of Train.
SparsifyResult Sparsify(const Model& dense, std::span<const std::int32_t> train,
                        std::span<const std::int32_t> valid, const SparsifyOptions& options,
                        const std::filesystem::path& out, const SparsifyCallbacks& callbacks);

}  // namespace clearhead
