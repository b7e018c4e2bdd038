// SPDX-License-Identifier: MIT
#include "model/packed_weights.h"

namespace clearhead {
namespace {

void PackBoth(const float* weight, std::int64_t in, std::int64_t out, PackedMatrix* packed) {
  packed->forward.Pack(weight, in, out, out, /*transposed=*/false);
  packed->transposed.Pack(weight, out, in, out, /*transposed=*/true);
}

}  // namespace

void PackedWeights::Pack(const Model& model) {
  const std::int64_t C = model.config.width, F = model.config.inner, V = model.config.vocabulary;
  blocks.resize(model.weights.blocks.size());
  for (std::size_t layer = 0; layer < blocks.size(); ++layer) {
    const BlockTensors<const float>& from = model.weights.blocks[layer];
    Block& to = blocks[layer];
    PackBoth(from.c_attn_weight, C, 3 * C, &to.c_attn);
    PackBoth(from.attn_c_proj_weight, C, C, &to.attn_c_proj);
    PackBoth(from.c_fc_weight, C, F, &to.c_fc);
    PackBoth(from.mlp_c_proj_weight, F, C, &to.mlp_c_proj);
  }
  lm_head.forward.Pack(model.weights.lm_head, C, V, C, /*transposed=*/true);
  lm_head.transposed.Pack(model.weights.lm_head, V, C, C, /*transposed=*/false);
}

}  // namespace clearhead
