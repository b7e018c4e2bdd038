// SPDX-License-Identifier: MIT
#include <cmath>

#include "core/buffer.h"
#include "core/random.h"
#include "core/threads.h"
#include "model/model.h"

namespace clearhead {

void FillRandom(const ModelConfig& config, std::uint64_t seed, float* block) {
  ModelTensors<float> tensors;
  std::uint64_t tensor = 0;
  VisitParameters(config, tensors, [&](const ParameterSpec& spec, float*&) {
    const std::int64_t size = spec.shape.size();
    const std::uint64_t key = HashCoordinates(seed, {tensor++});
    const bool norm_weight =
        spec.name.find("ln_") != std::string::npos && spec.name.ends_with(".weight");
    const bool residual = spec.name.ends_with("c_proj.weight");
    const double deviation =
        residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers)) : 0.02;
    ParallelRanges(size, [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; ++i) {
        if (!spec.decays) {
          block[i] = norm_weight ? 1.0f : 0.0f;
          continue;
        }
        // Element i is a function of (seed, tensor, i): the same on any number of threads.
        RandomStream stream(key + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15ull);
        block[i] = static_cast<float>(deviation * stream.Normal());
      }
    });
    block += size;
  });
}

Model RandomModel(const ModelConfig& config, std::uint64_t seed) {
  Model model;
  model.config = config;
  auto values = std::make_shared<Buffer<float>>(config.ParameterCount());
  FillRandom(config, seed, values->data());
  model.weights = BindContiguous<const float>(config, values->data());
  model.storage = std::move(values);
  return model;
}

}  // namespace clearhead
