// SPDX-License-Identifier: MIT
#include "model/intervention.h"

#include <array>

#include "core/error.h"

namespace clearhead {
namespace {

constexpr int kRank = 4;

// The list that selects along each axis of the tap; null where there is none.
std::array<const std::vector<std::int64_t>*, kRank> Selections(const Intervention& i) {
  switch (AxesOf(i.tap.tap)) {
    case TapAxes::kPosition:
      return {&i.sequences, &i.positions, nullptr, nullptr};
    case TapAxes::kPositionHead:
      return {&i.sequences, &i.positions, &i.heads, nullptr};
    case TapAxes::kHeadQueryKey:
      return {&i.sequences, &i.heads, &i.positions, &i.keys};
  }
  return {};
}

// Calls f(element, operand) for every selected element, where operand is the matching value (0 if
// the intervention has none).
template <typename F>
void ForSelected(const Intervention& intervention, const TensorView<float>& view, const F& f) {
  const auto selections = Selections(intervention);
  const int rank = view.shape.rank();
  std::array<std::int64_t, kRank> extent{1, 1, 1, 1}, stride{}, value_stride{};
  for (int axis = 0; axis < rank; ++axis) {
    extent[axis] = view.shape[axis];
    stride[axis] = view.strides[axis];
  }
  if (!intervention.values.empty()) {
    std::int64_t step = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
      value_stride[axis] = intervention.values_shape[axis] == 1 ? 0 : step;
      step *= intervention.values_shape[axis];
    }
  }
  const auto count = [&](int axis) {
    const auto* list = selections[axis];
    return list == nullptr || list->empty() ? extent[axis]
                                            : static_cast<std::int64_t>(list->size());
  };
  const auto index = [&](int axis, std::int64_t n) {
    const auto* list = selections[axis];
    return list == nullptr || list->empty() ? n : (*list)[static_cast<std::size_t>(n)];
  };
  for (std::int64_t a = 0; a < count(0); ++a) {
    for (std::int64_t b = 0; b < count(1); ++b) {
      for (std::int64_t c = 0; c < count(2); ++c) {
        for (std::int64_t d = 0; d < count(3); ++d) {
          const std::int64_t at[kRank] = {index(0, a), index(1, b), index(2, c), index(3, d)};
          std::int64_t offset = 0, value = 0;
          for (int axis = 0; axis < kRank; ++axis) {
            offset += at[axis] * stride[axis];
            value += at[axis] * value_stride[axis];
          }
          f(view.data[offset], intervention.values.empty()
                                   ? 0.0f
                                   : intervention.values[static_cast<std::size_t>(value)]);
        }
      }
    }
  }
}

}  // namespace

void CheckIntervention(const Intervention& intervention, const ModelConfig& config,
                       std::int64_t batch, std::int64_t length) {
  const std::string name = TapName(intervention.tap);
  if (!HasGradient(intervention.tap.tap)) {
    Fail("{} can be read but not changed", name);
  }
  if (IsPerLayer(intervention.tap.tap) &&
      (intervention.tap.layer < 0 || intervention.tap.layer >= config.layers)) {
    Fail("{}: the model has layers 0 to {}", name, config.layers - 1);
  }
  if (intervention.tap.tap == Tap::kSparseMask && config.attention != AttentionKind::kGated) {
    Fail("{}: this model has softmax attention and no gates", name);
  }
  const Shape shape = TapShape(intervention.tap.tap, config, batch, length);
  const auto selections = Selections(intervention);
  for (int axis = 0; axis < kRank; ++axis) {
    if (selections[axis] == nullptr) continue;
    for (const std::int64_t i : *selections[axis]) {
      if (i < 0 || i >= shape[axis]) {
        Fail("{}: index {} is outside axis {} of {}", name, i, axis, ToText(shape));
      }
    }
  }
  const TapAxes axes = AxesOf(intervention.tap.tap);
  if (!intervention.heads.empty() && axes == TapAxes::kPosition)
    Fail("{} has no heads to choose", name);
  if (!intervention.keys.empty() && axes != TapAxes::kHeadQueryKey)
    Fail("{} has no keys to choose", name);

  if (intervention.change == Change::kZero) return;
  bool fits =
      intervention.values_shape.rank() == shape.rank() &&
      intervention.values_shape.size() == static_cast<std::int64_t>(intervention.values.size());
  for (int axis = 0; fits && axis < shape.rank(); ++axis) {
    fits = intervention.values_shape[axis] == 1 || intervention.values_shape[axis] == shape[axis];
  }
  if (!fits || intervention.values.empty()) {
    Fail("{}: values of shape {} do not fit {} (each extent must be equal or 1)", name,
         ToText(intervention.values_shape), ToText(shape));
  }
}

void ApplyIntervention(const Intervention& intervention, const TensorView<float>& value) {
  ForSelected(intervention, value, [&](float& element, float operand) {
    switch (intervention.change) {
      case Change::kZero:
        element = 0.0f;
        break;
      case Change::kSet:
        element = operand;
        break;
      case Change::kAdd:
        element += operand;
        break;
      case Change::kScale:
        element *= operand;
        break;
    }
  });
}

void ApplyInterventionBackward(const Intervention& intervention,
                               const TensorView<float>& gradient) {
  if (intervention.change == Change::kAdd) return;
  ForSelected(intervention, gradient, [&](float& element, float operand) {
    element = intervention.change == Change::kScale ? element * operand : 0.0f;
  });
}

}  // namespace clearhead
