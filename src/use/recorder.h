// SPDX-License-Identifier: MIT
// The usual Hooks: applies interventions and keeps copies of chosen values and gradients by name.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "model/hooks.h"
#include "model/intervention.h"

namespace clearhead {

struct RecordedTensor {
  Shape shape;
  Buffer<float> values;
};

class Recorder final : public Hooks {
 public:
  // `interventions` are applied in order; what is recorded is the value after them.
  Recorder(std::vector<TapId> values, std::vector<TapId> gradients,
           std::vector<Intervention> interventions);

  bool Wants(TapId id) const override;
  void Visit(TapId id, const TensorView<float>& value) override;
  bool Changes(TapId id) const override;
  float* Storage(TapId id, const Shape& shape) override;
  bool WantsGradient(TapId id) const override;
  void VisitGradient(TapId id, const TensorView<float>& gradient) override;

  const std::map<TapId, RecordedTensor>& values() const { return values_; }
  const std::map<TapId, RecordedTensor>& gradients() const { return gradients_; }
  std::map<TapId, RecordedTensor> TakeValues() { return std::move(values_); }
  std::map<TapId, RecordedTensor> TakeGradients() { return std::move(gradients_); }

 private:
  std::vector<TapId> wanted_;            // sorted
  std::vector<TapId> wanted_gradients_;  // sorted
  std::vector<TapId> changed_;           // sorted
  std::vector<Intervention> interventions_;
  std::map<TapId, RecordedTensor> values_, gradients_;
};

}  // namespace clearhead
