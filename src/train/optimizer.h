// The optimiser: fp32 master weights, gradients and moments in one block each, walked by the
// parameter table.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "kernels/adamw.h"
#include "model/model.h"

namespace clearhead {

struct OptimizerOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;      // of matrices; biases and norms never decay
  bool decay_everything = false;  // torch.optim.AdamW's default, for comparison
  float clip_norm = 1.0f;         // largest global gradient norm; 0 switches clipping off
};

class Optimizer {
 public:
  // Starts from the weights of `start`, copied.
  Optimizer(const Gpt2& start, const OptimizerOptions& options);

  // The model being trained; its weights are weights().
  const Gpt2& model() const { return model_; }
  Gpt2Tensors<float>& gradients() { return gradient_tensors_; }

  // Norm of the accumulated gradients.
  double GradientNorm() const;

  // Clips by `norm` (as returned above), steps, and clears the gradients.
  void Step(double lr, double norm);

  std::int64_t steps() const { return steps_; }

  // Everything a checkpoint must hold.
  std::span<float> weights() { return weights_.span(); }
  std::span<float> first_moment() { return first_.span(); }
  std::span<float> second_moment() { return second_.span(); }
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  struct Segment {
    std::int64_t offset, size;
    bool decays;
  };
  OptimizerOptions options_;
  Buffer<float> weights_, gradients_, first_, second_;
  std::vector<Segment> segments_;  // runs of tensors with equal decay
  Gpt2 model_;
  Gpt2Tensors<float> gradient_tensors_;
  std::int64_t steps_ = 0;
};

}  // namespace clearhead
