// SPDX-License-Identifier: MIT
// One optimiser step of ordinary language-model training: forward and backward over the
// micro-batches, clip, AdamW. All memory is taken in the constructor; a step allocates nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/activations.h"
#include "model/packed_weights.h"
#include "train/batches.h"
#include "train/optimizer.h"

namespace clearhead {

struct StepShape {
  std::int64_t batch = 8;  // sequences per forward pass, of all ranks together
  std::int64_t context = 256;
  std::int64_t accumulation = 1;  // passes per optimiser step
  bool recompute = false;         // keep block inputs only, run blocks again in backward
  bool bf16 = false;
};

struct StepResult {
  double loss = 0.0;           // mean over the whole step, before the update
  double gradient_norm = 0.0;  // before clipping
  int broken_rank = -1;        // the first whose loss is no finite number, if there are several
};

// Tokens of one optimiser step. Throws Error where a number is below 1, the product does not fit
// into 64 bits, or `steps` of them do not.
std::int64_t TokensPerStep(const StepShape& shape, std::int64_t steps = 1);

// Throws Error too where the context is longer than the model's positions.
void CheckStepShape(const ModelConfig& config, const StepShape& shape, std::int64_t steps = 1);

class TrainStep {
 public:
  // With several ranks (null: one) each takes its share of every pass; the optimiser must be
  // theirs.
  TrainStep(const ModelConfig& config, const StepShape& shape, Communicator* ranks = nullptr);

  // Computes loss and gradients of samples first .. first + batch*accumulation - 1 into the
  // optimiser. The caller decides whether to step: a NaN must not reach the weights.
  StepResult Gradients(Optimizer& optimizer, Batches& batches, std::int64_t first_sample);

  // What training this shape takes, for --dry-run.
  static std::vector<MemoryItem> MemoryPlan(const ModelConfig& config, const StepShape& shape,
                                            const Communicator* ranks = nullptr);

 private:
  StepShape shape_;  // of all ranks
  std::optional<PackedFor> packing_;
  PackedWeights packed_;
  Communicator* ranks_;
  Activations activations_;
  std::vector<std::int32_t> inputs_, targets_;
  PackedBf16 scratch_;
};

// Rows of logits that exist at a time in training.
std::int64_t LogitRows(std::int64_t rows);

}  // namespace clearhead
