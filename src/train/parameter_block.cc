// SPDX-License-Identifier: MIT
#include "train/parameter_block.h"

#include <algorithm>
#include <cmath>

#include "kernels/adamw.h"

namespace clearhead {

ParameterBlock::ParameterBlock(const std::vector<ParameterRun>& runs) {
  std::int64_t size = 0;
  for (const ParameterRun& run : runs) {
    size += run.size;
    if (!runs_.empty() && runs_.back().decays == run.decays) {
      runs_.back().size += run.size;
    } else {
      runs_.push_back(run);
    }
  }
  values_ = Buffer<float>(size);
  for (Buffer<float>* zero : {&gradients_, &first_, &second_}) {
    *zero = Buffer<float>(size);
    std::fill(zero->begin(), zero->end(), 0.0f);
  }
}

double ParameterBlock::GradientNorm() const {
  return std::sqrt(SumOfSquares(gradients_.size(), gradients_.data()));
}

void ParameterBlock::Step(const AdamWOptions& options, double lr, double norm) {
  ++steps_;
  const bool clip = options.clip_norm > 0.0f && norm > options.clip_norm;
  const float scale = clip ? static_cast<float>(options.clip_norm / norm) : 1.0f;
  std::int64_t at = 0;
  for (const ParameterRun& run : runs_) {
    const AdamW adamw{.lr = static_cast<float>(lr),
                      .beta1 = options.beta1,
                      .beta2 = options.beta2,
                      .epsilon = options.epsilon,
                      .decay = run.decays ? options.weight_decay : 0.0f};
    AdamWStep(adamw, steps_, scale, run.size, values_.data() + at, gradients_.data() + at,
              first_.data() + at, second_.data() + at);
    at += run.size;
  }
}

}  // namespace clearhead
