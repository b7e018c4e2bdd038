// SPDX-License-Identifier: MIT
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace clearhead {

Optimizer::Optimizer(const Model& start, const OptimizerOptions& options)
    : options_(options), weights_(start.config.ParameterCount()), gradients_(weights_.size()) {
  Check(options.part.kind == TrainedPart::Kind::kAll || options.weight_decay == 0.0f,
        "frozen parameters must not decay");
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  std::int64_t offset = 0;
  ModelTensors<const float> from = start.weights;
  VisitParameters(start.config, from, [&](const ParameterSpec& spec, const float* values) {
    const std::int64_t size = spec.shape.size();
    std::copy(values, values + size, weights_.data() + offset);
    const bool decays = spec.decays || options_.decay_everything;
    if (!segments_.empty() && segments_.back().decays == decays) {
      segments_.back().size += size;
    } else {
      segments_.push_back({offset, size, decays});
    }
    offset += size;
  });
  model_.config = start.config;
  model_.weights = BindContiguous<const float>(start.config, weights_.data());
  weight_tensors_ = BindContiguous<float>(start.config, weights_.data());
  gradient_tensors_ = BindContiguous<float>(start.config, gradients_.data());
  if (options.part.kind == TrainedPart::Kind::kLora) {
    lora_.emplace(start, options.part.rank);
    factors_ = Buffer<float>(lora_->size());
    d_factors_ = Buffer<float>(lora_->size());
    lora_->Fill(factors_.data());
    segments_ = {{0, lora_->size(), false}};
  }
  frozen_ = FrozenPlaces(start.config, options.part.kind);
  const auto count = static_cast<std::int64_t>(trained().size());
  first_ = Buffer<float>(count);
  second_ = Buffer<float>(count);
  std::fill(first_.begin(), first_.end(), 0.0f);
  std::fill(second_.begin(), second_.end(), 0.0f);
}

double Optimizer::GradientNorm() {
  if (lora_) {
    lora_->Project(gradient_tensors_, factors_.data(), d_factors_.data());
    return std::sqrt(SumOfSquares(d_factors_.size(), d_factors_.data()));
  }
  ClearFrozenGradients(frozen_, gradients_.data());
  return std::sqrt(SumOfSquares(gradients_.size(), gradients_.data()));
}

void Optimizer::Step(double lr, double norm) {
  ++steps_;
  const bool clip = options_.clip_norm > 0.0f && norm > options_.clip_norm;
  const float scale = clip ? static_cast<float>(options_.clip_norm / norm) : 1.0f;
  float* gradients = lora_ ? d_factors_.data() : gradients_.data();
  for (const Segment& segment : segments_) {
    const AdamW adamw{.lr = static_cast<float>(lr),
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .decay = segment.decays ? options_.weight_decay : 0.0f};
    AdamWStep(adamw, steps_, scale, segment.size, trained().data() + segment.offset,
              gradients + segment.offset, first_.data() + segment.offset,
              second_.data() + segment.offset);
  }
  if (lora_) {
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    lora_->Merge(factors_.data(), weight_tensors_);
  }
}

void Optimizer::Restored(std::int64_t steps) {
  steps_ = steps;
  if (lora_) lora_->Merge(factors_.data(), weight_tensors_);
}

}  // namespace clearhead
