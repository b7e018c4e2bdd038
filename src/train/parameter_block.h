// SPDX-License-Identifier: MIT
// Values that are trained, with gradients and moments, and AdamW over them. Knows no model: what
// the values mean is the business of whoever binds them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"

namespace clearhead {

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;  // of runs that decay
  float clip_norm = 1.0f;     // largest global gradient norm; 0 switches clipping off
};

// A run of values with equal decay.
struct ParameterRun {
  std::int64_t size = 0;
  bool decays = false;
};

class ParameterBlock {
 public:
  ParameterBlock() = default;
  // Values are uninitialised, gradients and moments 0. Neighbouring runs that decay alike are one.
  explicit ParameterBlock(const std::vector<ParameterRun>& runs);

  std::span<float> values() { return values_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::span<float> first_moment() { return first_.span(); }
  std::span<float> second_moment() { return second_.span(); }
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }  // from a checkpoint

  double GradientNorm() const;

  // Clips by `norm` (as returned above), steps, and clears the gradients.
  void Step(const AdamWOptions& options, double lr, double norm);

 private:
  Buffer<float> values_, gradients_, first_, second_;
  std::vector<ParameterRun> runs_;
  std::int64_t steps_ = 0;
};

}  // namespace clearhead
