// SPDX-License-Identifier: MIT
#include <cmath>

#include "core/buffer.h"
#include "core/random.h"
#include "core/threads.h"
#include "model/model.h"

namespace clearhead {

void FillRandom(const ModelConfig& config, std::uint64_t seed, float* block) {
  std::uint64_t tensor = 0;
  for (const ParameterSpec& spec : ParameterTable(config)) {
    const std::int64_t size = spec.shape.size();
    const std::uint64_t key = HashCoordinates(seed, {tensor++});
    const double deviation = WritesToStream(spec.role)
                                 ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers))
                                 : 0.02;
    ParallelRanges(size, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        if (!spec.decays()) {
          block[i] = IsNormWeight(spec.role) ? 1.0f : 0.0f;
          continue;
        }
        // Element i is a function of (seed, tensor, i): the same on any number of threads.
        RandomStream stream(key + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ull);
        block[i] = static_cast<float>(deviation * stream.Normal());
      }
    });
    block += size;
  }
}

Model RandomModel(const ModelConfig& config, std::uint64_t seed) {
  Model model;
  model.config = config;
  auto values = std::make_shared<Buffer<float>>(config.ParameterCount());
  FillRandom(config, seed, values->data());
  model.weights = BindWeights(config, values->data());
  model.storage = std::move(values);
  return model;
}

}  // namespace clearhead
