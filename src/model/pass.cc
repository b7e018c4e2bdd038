// SPDX-License-Identifier: MIT
#include "model/pass.h"

#include "core/checked.h"

namespace clearhead {

KeyValueCache::KeyValueCache(const ModelConfig& config, std::int64_t sequences, std::int64_t size)
    : batch(sequences), capacity(size) {
  const std::int64_t count =
      CheckedProduct("sequences x positions x width of the cache", {batch, capacity, config.width});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    keys.emplace_back(count);
    values.emplace_back(count);
  }
}

BlockLayers LayersOf(const Pass& pass, std::int64_t layer) {
  const ModelConfig& config = pass.config();
  const auto at = static_cast<std::size_t>(layer);
  const BlockTensors<const float>& w = pass.model.weights.blocks[at];
  const std::int64_t C = config.width, F = config.inner;
  BlockLayers layers{
      .ln_1 = {w.ln_1_weight, w.ln_1_bias, C, config.layer_norm_epsilon},
      .ln_2 = {w.ln_2_weight, w.ln_2_bias, C, config.layer_norm_epsilon},
      .c_attn = {w.c_attn_weight, w.c_attn_bias, C, 3 * C},
      .attn_c_proj = {w.attn_c_proj_weight, w.attn_c_proj_bias, C, C},
      .c_fc = {w.c_fc_weight, w.c_fc_bias, C, F},
      .mlp_c_proj = {w.mlp_c_proj_weight, w.mlp_c_proj_bias, F, C},
  };
  if (pass.packed != nullptr) {
    const PackedWeights::Block& packed = pass.packed->blocks[at];
    const auto use = [](const PackedMatrix& matrix, Linear* linear) {
      linear->packed = &matrix.forward;
      linear->packed_transposed = &matrix.transposed;
    };
    use(packed.c_attn, &layers.c_attn);
    use(packed.attn_c_proj, &layers.attn_c_proj);
    use(packed.c_fc, &layers.c_fc);
    use(packed.mlp_c_proj, &layers.mlp_c_proj);
  }
  return layers;
}

}  // namespace clearhead
