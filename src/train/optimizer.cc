// SPDX-License-Identifier: MIT
#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace clearhead {

Optimizer::Optimizer(const Model& start, const OptimizerOptions& options)
    : options_(options), model_(start) {
  const TrainedPart::Kind kind = options.part.kind;
  Check(kind == TrainedPart::Kind::kAll || options.weight_decay == 0.0f,
        "parts of tensors that are frozen must not decay");
  std::int64_t from = 0, to = 0;
  for (const ParameterSpec& spec : ParameterTable(start.config)) {
    const std::int64_t size = spec.shape.size();
    if (IsTrained(kind, spec.role)) {
      parts_.push_back({from, to, size});
      const bool decays = spec.decays() || options_.decay_everything;
      if (!segments_.empty() && segments_.back().decays == decays) {
        segments_.back().size += size;
      } else {
        segments_.push_back({to, size, decays});
      }
      to += size;
    }
    from += size;
  }
  weights_ = Buffer<float>(to);
  gradients_ = Buffer<float>(to);
  std::fill(gradients_.begin(), gradients_.end(), 0.0f);
  weight_tensors_.blocks.resize(start.weights.blocks.size());
  gradient_tensors_.blocks.resize(start.weights.blocks.size());
  std::int64_t at = 0;
  VisitParameters(start.config, model_.weights, [&](const ParameterSpec& spec, Weight& weight) {
    if (!IsTrained(kind, spec.role)) return;
    float* own = weights_.data() + at;
    weight.CopyTo(0, spec.shape.size(), own);
    weight = Weight(own);
    weight_tensors_(spec.role, spec.layer) = own;
    gradient_tensors_(spec.role, spec.layer) = gradients_.data() + at;
    at += spec.shape.size();
  });
  if (options.part.kind == TrainedPart::Kind::kLora) {
    lora_.emplace(start, options.part.rank);
    factors_ = Buffer<float>(lora_->size());
    d_factors_ = Buffer<float>(lora_->size());
    lora_->Fill(factors_.data());
    segments_ = {{0, lora_->size(), false}};
  }
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
  ClearFrozenColumns(model_.config, options_.part.kind, gradient_tensors_);
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

void Optimizer::PickTrained(std::span<const float> whole, std::span<float> out) const {
  for (const Part& part : parts_) {
    std::copy_n(whole.begin() + part.from, part.size, out.begin() + part.to);
  }
}

void Optimizer::Restored(std::int64_t steps) {
  steps_ = steps;
  if (lora_) lora_->Merge(factors_.data(), weight_tensors_);
}

}  // namespace clearhead
