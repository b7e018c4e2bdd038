// SPDX-License-Identifier: MIT
// The hooks of a run from outside: the caller's own code at chosen taps, then the recorder.
#pragma once

#include <clearhead/model.h>

#include <map>
#include <vector>

#include "model/hooks.h"

namespace clearhead::api {

class CallerHooks final : public Hooks {
 public:
  CallerHooks(const std::vector<Hook>& hooks, const ModelConfig& config);

  // What is called at every tap after the caller's code. Once, before the run.
  Hooks* Around(Hooks* recorder);

  bool Wants(TapId id) const override;  // also stops the run if the host says so
  bool Changes(TapId id) const override;
  void Visit(TapId id, const TensorView<float>& value) override;
  float* Storage(TapId id, const Shape& shape) override { return recorder_->Storage(id, shape); }
  bool WantsGradient(TapId id) const override { return recorder_->WantsGradient(id); }
  void VisitGradient(TapId id, const TensorView<float>& gradient) override {
    recorder_->VisitGradient(id, gradient);
  }

 private:
  std::map<TapId, std::vector<const Hook*>> hooks_;
  Hooks* recorder_ = nullptr;
};

}  // namespace clearhead::api
