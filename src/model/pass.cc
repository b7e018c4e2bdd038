// SPDX-License-Identifier: MIT
#include "model/pass.h"

#include <algorithm>

#include "core/checked.h"
#include "model/head_weights.h"

namespace clearhead {

KeyValueCache::KeyValueCache(const ModelConfig& config, std::int64_t sequences, std::int64_t size)
    : batch(sequences), capacity(size), width(config.kv_width()) {
  const std::int64_t count =
      CheckedProduct("sequences x positions x width of the cache", {batch, capacity, width});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    keys.emplace_back(count);
    values.emplace_back(count);
  }
}

void KeyValueCache::KeepSequences(std::span<const std::int64_t> sequences) {
  for (std::vector<Buffer<float>>* buffers : {&keys, &values}) {
    for (Buffer<float>& buffer : *buffers) {
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        const float* from = buffer.data() + sequences[i] * capacity * width;
        float* to = buffer.data() + static_cast<std::int64_t>(i) * capacity * width;
        if (from != to) std::copy(from, from + length * width, to);
      }
    }
  }
  batch = static_cast<std::int64_t>(sequences.size());
}

BlockLayers LayersOf(const Pass& pass, std::int64_t layer) {
  BlockLayers layers = LayersOf(pass.model, layer);
  const PackedWeights* packed = pass.PackedOrNull();
  if (packed == nullptr) return layers;
  const RoleTensors<PackedLayer>& matrices = packed->blocks[static_cast<std::size_t>(layer)];
  const auto use = [&](BlockLinear& layer_of_block) {
    if (layer_of_block.linear.weight.empty()) return;
    packed->Use(matrices[layer_of_block.weight], &layer_of_block.linear);
  };
  for (int i = 0; i < layers.projection_count; ++i) {
    use(layers.projections[static_cast<std::size_t>(i)].layer);
  }
  for (BlockLinear* each : {&layers.output, &layers.mlp_gate, &layers.mlp_in, &layers.mlp_out}) {
    use(*each);
  }
  return layers;
}

}  // namespace clearhead
