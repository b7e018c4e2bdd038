// SPDX-License-Identifier: MIT
#include "use/recorder.h"

#include <algorithm>

namespace clearhead {
namespace {

std::vector<TapId> Sorted(std::vector<TapId> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

bool Contains(const std::vector<TapId>& sorted, TapId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

RecordedTensor& Slot(std::map<TapId, RecordedTensor>& map, TapId id, const Shape& shape) {
  RecordedTensor& slot = map[id];
  if (slot.shape != shape || slot.values.size() != shape.size()) {
    slot.shape = shape;
    slot.values = Buffer<float>(shape.size());
  }
  return slot;
}

}  // namespace

Recorder::Recorder(std::vector<TapId> values, std::vector<TapId> gradients,
                   std::vector<Intervention> interventions)
    : wanted_(Sorted(std::move(values))),
      wanted_gradients_(Sorted(std::move(gradients))),
      interventions_(std::move(interventions)) {
  for (const Intervention& intervention : interventions_) changed_.push_back(intervention.tap);
  changed_ = Sorted(std::move(changed_));
}

bool Recorder::Wants(TapId id) const { return Contains(wanted_, id) || Changes(id); }

bool Recorder::Changes(TapId id) const { return Contains(changed_, id); }

float* Recorder::Storage(TapId id, const Shape& shape) {
  return Contains(wanted_, id) ? Slot(values_, id, shape).values.data() : nullptr;
}

void Recorder::Visit(TapId id, const TensorView<float>& value) {
  for (const Intervention& intervention : interventions_) {
    if (intervention.tap == id) ApplyIntervention(intervention, value);
  }
  if (!Contains(wanted_, id)) return;
  RecordedTensor& slot = Slot(values_, id, value.shape);
  if (slot.values.data() != value.data) CopyTo(value, slot.values.data());
}

bool Recorder::WantsGradient(TapId id) const {
  return Contains(wanted_gradients_, id) || Changes(id);
}

void Recorder::VisitGradient(TapId id, const TensorView<float>& gradient) {
  // d loss / d (value after the interventions), which is what was recorded of the value; then on to
  // the value before them, last intervention first.
  if (Contains(wanted_gradients_, id)) {
    CopyTo(gradient, Slot(gradients_, id, gradient.shape).values.data());
  }
  for (auto it = interventions_.rbegin(); it != interventions_.rend(); ++it) {
    if (it->tap == id) ApplyInterventionBackward(*it, gradient);
  }
}

}  // namespace clearhead
