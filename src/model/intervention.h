// SPDX-License-Identifier: MIT
// Interventions: changes to chosen elements of a tap during a run, e.g. zero the output of head 3
// in layer 5, or set its pattern at query 8 to what it was on another prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "model/taps.h"

namespace clearhead {

enum class Change { kZero, kSet, kAdd, kScale };

struct Intervention {
  TapId tap;
  Change change = Change::kZero;
  // Which elements; an empty list means all. `keys` applies to [B,H,T,T] taps, `heads` to taps with
  // a head axis, `positions` are query positions where there are queries and keys.
  std::vector<std::int64_t> sequences = {};
  std::vector<std::int64_t> positions = {};
  std::vector<std::int64_t> heads = {};
  std::vector<std::int64_t> keys = {};
  // kSet, kAdd: the other operand, of the tap's shape or with extents 1 that are repeated. kScale:
  // the factor, likewise.
  std::vector<float> values = {};
  Shape values_shape = {};
};

// Refuses an intervention that does not fit the model or the input, naming what is wrong.
void CheckIntervention(const Intervention& intervention, const ModelConfig& config,
                       std::int64_t batch, std::int64_t length);

void ApplyIntervention(const Intervention& intervention, const TensorView<float>& value);

// d loss / d (value before) from d loss / d (value after), in place: 0 where set, scaled where
// scaled.
void ApplyInterventionBackward(const Intervention& intervention, const TensorView<float>& gradient);

}  // namespace clearhead
