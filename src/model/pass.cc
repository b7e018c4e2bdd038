// SPDX-License-Identifier: MIT
#include "model/pass.h"

#include "core/checked.h"
#include "model/head_weights.h"

namespace clearhead {

KeyValueCache::KeyValueCache(const ModelConfig& config, std::int64_t sequences, std::int64_t size)
    : batch(sequences), capacity(size) {
  const std::int64_t count = CheckedProduct("sequences x positions x width of the cache",
                                            {batch, capacity, config.kv_width()});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    keys.emplace_back(count);
    values.emplace_back(count);
  }
}

BlockLayers LayersOf(const Pass& pass, std::int64_t layer) {
  BlockLayers layers = LayersOf(pass.model, layer);
  if (pass.packed == nullptr) return layers;
  const RoleTensors<PackedMatrix>& packed = pass.packed->blocks[static_cast<std::size_t>(layer)];
  const auto use = [&](BlockLinear& layer_of_block) {
    if (layer_of_block.linear.weight.empty()) return;
    layer_of_block.linear.packed = &packed[layer_of_block.weight].forward;
    layer_of_block.linear.packed_transposed = &packed[layer_of_block.weight].transposed;
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
