// SPDX-License-Identifier: MIT
// The optimiser: fp32 master weights, gradients and moments in one block each, walked by the
// parameter table. A part of the parameters may be frozen, or trained through thin factors.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "kernels/adamw.h"
#include "model/model.h"
#include "train/lora.h"
#include "train/trained_part.h"

namespace clearhead {

struct OptimizerOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;      // of matrices; biases and norms never decay
  bool decay_everything = false;  // torch.optim.AdamW's default, for comparison
  float clip_norm = 1.0f;         // largest global gradient norm; 0 switches clipping off
  TrainedPart part = {};          // without weight decay if it is not everything
};

class Optimizer {
 public:
  // Starts from the weights of `start`, copied.
  Optimizer(const Model& start, const OptimizerOptions& options);

  // The model being trained.
  const Model& model() const { return model_; }
  ModelTensors<float>& gradients() { return gradient_tensors_; }

  // Norm of the accumulated gradients of what is trained; the others are cleared.
  double GradientNorm();

  // Clips by `norm` (as returned above), steps, and clears the gradients.
  void Step(double lr, double norm);

  std::int64_t steps() const { return steps_; }

  // Everything a checkpoint must hold: the weights, or LoRA's factors.
  std::span<float> trained() { return lora_ ? factors_.span() : weights_.span(); }
  std::span<float> first_moment() { return first_.span(); }
  std::span<float> second_moment() { return second_.span(); }
  // To be called when the above have been filled from a checkpoint.
  void Restored(std::int64_t steps);

 private:
  struct Segment {
    std::int64_t offset, size;
    bool decays;
  };
  OptimizerOptions options_;
  std::optional<Lora> lora_;
  Buffer<float> weights_, gradients_;  // of the whole model
  Buffer<float> factors_, d_factors_;  // LoRA's
  Buffer<float> first_, second_;       // moments of what is trained
  std::vector<Segment> segments_;      // runs of trained values with equal decay
  std::vector<FrozenColumns> frozen_;
  Model model_;
  ModelTensors<float> weight_tensors_, gradient_tensors_;
  std::int64_t steps_ = 0;
};

}  // namespace clearhead
