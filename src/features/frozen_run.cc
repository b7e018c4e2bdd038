// SPDX-License-Identifier: MIT
#include "features/frozen_run.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/threads.h"
#include "model/run.h"

namespace clearhead {
namespace {

// The tap of the divisors of the norm that makes a value; nothing for others.
std::optional<TapId> DivisorOf(TapId id) {
  switch (id.tap) {
    case Tap::kLn1Normalized:
      return TapId{Tap::kLn1Scale, id.layer};
    case Tap::kLn2Normalized:
      return TapId{Tap::kLn2Scale, id.layer};
    case Tap::kLnFinalNormalized:
      return TapId{Tap::kLnFinalScale, 0};
    default:
      return {};
  }
}

Weight NormBias(const Model& model, TapId id) {
  switch (id.tap) {
    case Tap::kLn1Normalized:
      return model.weights(Role::kAttentionNormBias, id.layer);
    case Tap::kLn2Normalized:
      return model.weights(Role::kMlpNormBias, id.layer);
    default:
      return model.weights(Role::kFinalNormBias);
  }
}

}  // namespace

const RecordedTensor* FrozenRun::Find(TapId id) const {
  const auto it = values.find(id);
  return it == values.end() ? nullptr : &it->second;
}

FrozenRun KeepForFreezing(const Model& model, const Transcoder& transcoder,
                          std::span<const std::int32_t> ids, std::int64_t batch, Freeze freeze,
                          const GateRun& gates, const PackedWeights* packed) {
  FrozenRun frozen{.freeze = freeze};
  if (freeze == Freeze::kNothing) return frozen;
  const TranscoderConfig& c = transcoder.config;
  std::vector<TapId> taps;
  for (std::int64_t l = 0; l < c.layers; ++l) {
    taps.push_back({Tap::kPattern, l});
    if (freeze != Freeze::kAll) continue;
    for (const Tap tap : {Tap::kLn1Scale, Tap::kLn2Scale, c.reads, Tap::kMlpOut}) {
      taps.push_back({tap, l});
    }
  }
  if (freeze == Freeze::kAll) taps.push_back({Tap::kLnFinalScale, 0});
  Recorder recorder(taps, {}, {});
  const Pass pass{.model = model,
                  .batch = batch,
                  .length = static_cast<std::int64_t>(ids.size()) / batch,
                  .hooks = &recorder,
                  .gates = gates,
                  .packed = packed};
  Activations activations(model.config, batch, pass.length, Keep::kNothing, /*logit_rows=*/0);
  ForwardToFinalNorm(pass, ids.data(), activations);
  frozen.values = recorder.TakeValues();
  for (std::int64_t l = 0; freeze == Freeze::kAll && l < c.layers; ++l) {
    frozen.active.push_back(
        Encode(transcoder, l, pass.rows(), frozen.Find({c.reads, l})->values.data()));
  }
  return frozen;
}

void HoldValue(const FrozenRun& frozen, const Model& model, TapId id,
               const std::vector<float>& divisors, const TensorView<float>& value) {
  if (id.tap == Tap::kPattern) {
    const RecordedTensor* kept = frozen.Find(id);
    if (kept == nullptr) return;
    Check(kept->shape == value.shape && value.contiguous(), "a frozen run of the same input");
    std::copy(kept->values.begin(), kept->values.end(), value.data);
    return;
  }
  const std::optional<TapId> divisor = DivisorOf(id);
  const RecordedTensor* kept = divisor ? frozen.Find(*divisor) : nullptr;
  if (kept == nullptr) return;
  const std::int64_t C = value.shape[2], R = value.shape[0] * value.shape[1];
  Check(kept->values.size() == R && static_cast<std::int64_t>(divisors.size()) == R &&
            value.contiguous(),
        "a frozen run of the same input");
  // (x - mean) / new * weight + bias, as if divided by old.
  const Weight weight = NormBias(model, id);
  const float* bias = weight.empty() ? nullptr : weight.f32();
  ParallelFor(R, [&](std::int64_t r) {
    const float ratio = divisors[static_cast<std::size_t>(r)] / kept->values[r];
    float* row = value.data + r * C;
    for (std::int64_t i = 0; i < C; ++i) {
      const float b = bias == nullptr ? 0.0f : bias[i];
      row[i] = (row[i] - b) * ratio + b;
    }
  });
}

}  // namespace clearhead
