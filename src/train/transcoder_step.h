// SPDX-License-Identifier: MIT
// One step of training a transcoder: loss and exact gradients, sparse wherever features are.
//
//   pre(l)   = x(l) W_enc(l)^T + b_enc(l)                     the only dense product
//   a        = pre where it is above the threshold, else 0
//   yhat(t)  = b_dec(t) + sum over l <= t of a(l) W_dec(l, t)
//   error    = mean over rows, layers and dimensions of (yhat - y)^2      (y has variance 1)
//
// Which features fire:
//   TopK        the k largest of a row and layer
//   BatchTopK   those above the value that k per row exceed in this batch; a running mean of that
//               value is the threshold of the saved features
//   JumpReLU    those above a trained threshold of their own, with the penalty
//               c sum over features of tanh(4 a |W_dec|) per row. A threshold's gradient goes
//               through a rectangle of width 0.5 around it (pre-activations have variance 1):
//               d theta = -1/0.5 * (theta dL/da + c tanh(4 theta |W_dec|)) for every pre-activation
//               inside.
//
// Features that have been silent for long get a gradient too: the 32 with the largest
// pre-activations explain, on every eighth row, what the others leave of y.
//
// Rows are cut into pieces of a fixed size, each done by one thread at a time; weights' gradients
// are summed feature by feature in the order of the rows. Bits do not depend on the number of
// threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "kernels/gemm.h"
#include "kernels/sparse_rows.h"
#include "train/transcoder_data.h"
#include "train/transcoder_parameters.h"

namespace clearhead {

enum class FiringRule { kTopK, kBatchTopK, kJumpRelu };

struct TranscoderStepOptions {
  FiringRule rule = FiringRule::kBatchTopK;
  double l0 = 16.0;             // features per row and layer, of kTopK and kBatchTopK
  float aux = 1.0f / 32;        // weight of the silent features' error; 0: none
  std::int64_t aux_count = 32;  // of them per row
};

struct TranscoderMeasure {
  double loss = 0.0;                // mean over layers of `unexplained`, against variance 1
  double penalty = 0.0;             // of kJumpRelu, without its weight c
  std::vector<double> unexplained;  // per layer: squared error / squared y, of these rows
  std::vector<double> l0;           // per layer: features that fired per row
};

class TranscoderStep {
 public:
  // `rows` of a step of all ranks; this one takes its part of them (RankRowsOf).
  TranscoderStep(const TranscoderShape& shape, const TranscoderStepOptions& options,
                 std::int64_t rows, Communicator* ranks = nullptr);

  // Adds this rank's gradients to `gradients`; what is measured is of all ranks. `penalty_weight`
  // is c. `silent[l * F + f]` tells which features count as dead.
  TranscoderMeasure Gradients(const TranscoderRows& batch,
                              const std::vector<TranscoderTensors>& weights,
                              const std::vector<TranscoderTensors>& gradients, float penalty_weight,
                              const std::vector<char>& silent);

  // The same without gradients, features firing above given thresholds [l][f] (of kTopK: by rank).
  TranscoderMeasure Measure(const TranscoderRows& batch,
                            const std::vector<TranscoderTensors>& weights,
                            const std::vector<std::vector<float>>& thresholds);

  // Of the last call: what fired in a layer, and the batch's threshold (kBatchTopK).
  const SparseRows& fired(std::int64_t layer) const {
    return entries_[static_cast<std::size_t>(layer)];
  }
  const std::vector<float>& batch_thresholds() const { return batch_thresholds_; }

  // Thresholds [F] at which every feature of a layer fires on `share` of the rows.
  std::vector<float> QuantileThresholds(const TranscoderRows& batch,
                                        const std::vector<TranscoderTensors>& weights,
                                        std::int64_t layer, double share);

 private:
  struct Piece;  // rows that one thread works on
  void Prepare(const TranscoderRows& batch, const std::vector<TranscoderTensors>& weights,
               const std::vector<char>& silent);
  void PackEncoders(const std::vector<TranscoderTensors>& weights);
  void SetLimits(std::size_t layer, const float* bias, float below,
                 std::vector<float>& limit) const;
  void EncodePiece(const TranscoderRows& batch, const std::vector<TranscoderTensors>& weights,
                   Piece& piece);
  void Decode(const std::vector<TranscoderTensors>& weights);
  void ErrorsOfPiece(const TranscoderRows& batch, Piece& piece);
  void SilentPiece(const std::vector<TranscoderTensors>& weights, Piece& piece);
  void Collect();
  void WeightGradients(const TranscoderRows& batch, const std::vector<TranscoderTensors>& weights,
                       const std::vector<TranscoderTensors>& gradients, float penalty_weight);
  // Adds one feature's gradients; returns its part of the penalty.
  double ThresholdedFeature(std::int64_t layer, std::int64_t f, const SparseColumns& columns,
                            const TranscoderRows& batch, const TranscoderTensors& w,
                            const TranscoderTensors& g, float c) const;
  TranscoderMeasure Totals() const;
  // x of chosen rows of the whole step, [chosen, C] of each layer, on every rank.
  std::vector<Buffer<float>> GatherInputs(const TranscoderRows& batch,
                                          std::span<const std::int64_t> chosen) const;

  TranscoderShape shape_;
  TranscoderStepOptions options_;
  Communicator* ranks_;
  RankRows own_;
  std::int64_t rows_;  // of this rank
  bool backward_ = false;
  Buffer<float> d_y_;                              // [rows, L, C] yhat, then its gradient
  Buffer<float> d_aux_;                            // [rows / 8, L, C] the same for silent features
  std::vector<PackedPanels> encoder_;              // [l] packed, of this step
  std::vector<std::vector<float>> threshold_;      // [l][f] of this step
  std::vector<std::vector<float>> norm_;           // [l][f] |W_dec| (kJumpRelu)
  std::vector<std::vector<std::int32_t>> silent_;  // [l] silent features
  std::vector<float> batch_thresholds_;            // [l]
  std::vector<Piece> pieces_;
  // Of all pieces together, by layer: what fired, what lay above the rectangles' lower ends
  // (kJumpRelu), silent features' part.
  std::vector<SparseRows> entries_, near_entries_, aux_entries_;
  double penalty_ = 0.0;

 public:
  ~TranscoderStep();
};

}  // namespace clearhead
