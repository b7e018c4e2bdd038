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
#include "train/rank_batch.h"
#include "train/step.h"
#include "train/stored_logits.h"

namespace clearhead {

struct SparsifyStepOptions {
  StepShape shape;
  float distill = 1.0f;  // weight of KL(dense || sparse)
  // The dense model wrote the text: what it says of the next token is better than the token drawn,
  // and cannot be learnt by heart. CE is left out.
  bool own_text = false;
  std::uint64_t seed = 0;  // of the gate noise
  // The penalty is the mean over heads of the square root of each head's mean gate, times what
  // makes its mean gradient that of the plain mean in the first step.
  bool concentrate = false;
  // The teacher's logits; null: the dense model runs. Batches must then start at the beginnings of
  // its sequences.
  const StoredLogits* stored = nullptr;
  Communicator* ranks = nullptr;  // who share every batch; null: one alone
};

struct SparsifyStepResult {
  double loss = 0.0;        // cross-entropy with the gates of the step
  double dense_loss = 0.0;  // the teacher's, on the same batch
  double divergence = 0.0;  // KL(dense || sparse)
  double penalty = 0.0;     // mean gate probability over layers, heads and causal pairs
  double open_share = 0.0;  // of these gates
  double gradient_norm = 0.0;
  int broken_rank = -1;  // the first whose numbers are not finite, if there are several
};

class SparsifyStep {
 public:
  // `config` is the student's: gated.
  SparsifyStep(const ModelConfig& config, const SparsifyStepOptions& options);

  // Gradients of (CE + distill KL + beta P) / (1 + beta), without CE on own text, into the
  // optimiser, which holds the student. `step` is a coordinate of the noise of sampled gates.
  // Allocates nothing.
  SparsifyStepResult Gradients(Optimizer& optimizer, const Model& dense, Batches& batches,
                               std::int64_t step, double beta, GateMode mode = GateMode::kSampled);

  // By how much the loss of the last batch would be lower with every gate's bias raised by `shift`:
  // hard gates, the weights of the last call. Negative where open gates do harm.
  double GainOfOpening(const Model& model, double shift);

  // What the square root was multiplied with since the first step; 0 before it, or without one.
  double concentrate_scale() const { return concentrate_scale_; }
  void RestoreConcentrateScale(double scale) { concentrate_scale_ = scale; }

 private:
  void TeacherLogits(const Pass& teacher, std::int64_t first_row, std::int64_t rows);

  SparsifyStepOptions options_;
  RankBatch own_;  // of every pass
  Activations student_;
  std::optional<Activations> teacher_;  // where the dense model runs
  Buffer<float> teacher_logits_;        // [logit_rows, V]
  std::vector<std::int64_t> starts_;    // of the batch's sequences in the stored ids
  Buffer<float> teacher_losses_, divergences_;
  std::vector<std::int32_t> inputs_, targets_;
  double concentrate_scale_ = 0.0;
  std::vector<double> head_means_;  // of the pass at hand, on all ranks
  std::optional<PackedFor> packing_;
  PackedWeights packed_student_;
  std::unique_ptr<PackedWeights> packed_teacher_;  // packed once
  PackedBf16 scratch_;
};

}  // namespace clearhead
