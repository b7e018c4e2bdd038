// SPDX-License-Identifier: MIT
#include "model/fingerprint.h"

#include <algorithm>
#include <bit>

#include "core/buffer.h"
#include "core/random.h"

namespace clearhead {

std::uint64_t WeightsFingerprint(const Model& model) {
  std::uint64_t hash = 0;
  ModelWeights weights = model.weights;
  Buffer<float> values(1 << 16);  // a piece at a time: weights may be stored in 16 bits
  VisitParameters(model.config, weights, [&](const ParameterSpec& spec, const Weight& weight) {
    for (std::int64_t first = 0; first < spec.shape.size(); first += values.size()) {
      const std::int64_t count = std::min(values.size(), spec.shape.size() - first);
      weight.CopyTo(first, count, values.data());
      for (std::int64_t i = 0; i < count; ++i) {
        hash = Mix64(hash ^ std::bit_cast<std::uint32_t>(values[i])) + 1;
      }
    }
  });
  return hash;
}

}  // namespace clearhead
