// SPDX-License-Identifier: MIT
// What an intervention leaves as it was, taken from a run without it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "features/transcoder.h"
#include "model/pass.h"
#include "use/recorder.h"

namespace clearhead {

enum class Freeze {
  kNothing,
  kAttention,  // attention weights; norms and MLPs are computed anew
  kAll,        // attention weights, the divisors of norms, MLP outputs: what is left is linear, and
               // the features' own direct effects are all that changes
};

struct FrozenRun {
  Freeze freeze = Freeze::kNothing;
  std::map<TapId, RecordedTensor> values;
  std::vector<SparseRows> active;  // kAll: what fires in each layer

  const RecordedTensor* Find(TapId id) const;
};

// Runs the model over ids [B,T] and keeps what `freeze` holds.
FrozenRun KeepForFreezing(const Model& model, const Transcoder& transcoder,
                          std::span<const std::int32_t> ids, std::int64_t batch, Freeze freeze,
                          const GateRun& gates, const PackedWeights* packed = nullptr);

// Where the run has a value for this tap, puts it there: attention weights as they were, what a
// norm makes as if it had divided as it did (`divisors` are those of the tap before, hook_scale).
// MLP outputs are left to the caller.
void HoldValue(const FrozenRun& frozen, const Model& model, TapId id,
               const std::vector<float>& divisors, const TensorView<float>& value);

}  // namespace clearhead
