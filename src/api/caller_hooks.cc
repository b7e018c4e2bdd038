// SPDX-License-Identifier: MIT
#include "api/caller_hooks.h"

#include "core/buffer.h"
#include "core/host.h"

namespace clearhead::api {
namespace {

// The way back of CopyTo.
void CopyFrom(const float* from, const TensorView<float>& view) {
  std::array<std::int64_t, Shape::kMaxRank> at{};
  for (std::int64_t i = 0; i < view.shape.size(); ++i) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < view.shape.rank(); ++axis) offset += at[axis] * view.strides[axis];
    view.data[offset] = from[i];
    for (int axis = view.shape.rank() - 1; axis >= 0 && ++at[axis] == view.shape[axis]; --axis) {
      at[axis] = 0;
    }
  }
}

}  // namespace

CallerHooks::CallerHooks(const std::vector<Hook>& hooks, const ModelConfig& config) {
  for (const Hook& hook : hooks) {
    for (const TapId id : clearhead::MatchTaps(hook.taps, config)) hooks_[id].push_back(&hook);
  }
}

Hooks* CallerHooks::Around(Hooks* recorder) {
  recorder_ = recorder;
  return this;
}

bool CallerHooks::Wants(TapId id) const {
  StopIfAsked();
  return hooks_.contains(id) || recorder_->Wants(id);
}

bool CallerHooks::Changes(TapId id) const { return hooks_.contains(id) || recorder_->Changes(id); }

void CallerHooks::Visit(TapId id, const TensorView<float>& value) {
  if (const auto found = hooks_.find(id); found != hooks_.end()) {
    Array array;
    for (int axis = 0; axis < value.shape.rank(); ++axis) array.shape.push_back(value.shape[axis]);
    Buffer<float> copy;  // of what does not lie in one piece
    array.data = value.data;
    if (!value.contiguous()) {
      copy = Buffer<float>(value.shape.size());
      CopyTo(value, copy.data());
      array.data = copy.data();
    }
    for (const Hook* hook : found->second) hook->call(TapName(id), array);
    if (array.data != value.data) CopyFrom(array.data, value);
  }
  if (recorder_->Wants(id)) recorder_->Visit(id, value);
}

}  // namespace clearhead::api
