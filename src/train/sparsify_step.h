// SPDX-License-Identifier: MIT
// One step of sparse post-training: the gated student against its own dense self, frozen, on one
// batch. What the dense model says is computed, or read from a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/activations.h"
#include "model/packed_weights.h"
#include "model/pass.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/step.h"
#include "train/stored_logits.h"

namespace clearhead {

struct SparsifyStepOptions {
  StepShape shape;
  float distill = 1.0f;    // weight of KL(dense || sparse)
  std::uint64_t seed = 0;  // of the gate noise
  // The teacher's logits; null: the dense model runs. Batches must then start at the beginnings of
  // its sequences.
  const StoredLogits* stored = nullptr;
};

struct SparsifyStepResult {
  double loss = 0.0;        // cross-entropy with sampled gates
  double dense_loss = 0.0;  // the teacher's, on the same batch
  double divergence = 0.0;  // KL(dense || sparse)
  double penalty = 0.0;     // mean gate probability over layers, heads and causal pairs
  double open_share = 0.0;  // of the sampled gates
  double gradient_norm = 0.0;
};

class SparsifyStep {
 public:
  // `config` is the student's: gated.
  SparsifyStep(const ModelConfig& config, const SparsifyStepOptions& options);

  // Gradients of (CE + distill KL + beta P) / (1 + beta) into the optimiser, which holds the
  // student. `step` is a coordinate of the noise. Allocates nothing.
  SparsifyStepResult Gradients(Optimizer& optimizer, const Model& dense, Batches& batches,
                               std::int64_t step, double beta);

 private:
  void TeacherLogits(const Pass& teacher, std::int64_t first_row, std::int64_t rows);

  SparsifyStepOptions options_;
  Activations student_;
  std::optional<Activations> teacher_;  // where the dense model runs
  Buffer<float> teacher_logits_;        // [logit_rows, V]
  std::vector<std::int64_t> starts_;    // of the batch's sequences in the stored ids
  Buffer<float> teacher_losses_, divergences_;
  std::vector<std::int32_t> inputs_, targets_;
  std::unique_ptr<PackedWeights> packed_student_, packed_teacher_;
  PackedBf16 scratch_;
};

}  // namespace clearhead
