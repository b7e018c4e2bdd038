// SPDX-License-Identifier: MIT
// The weights of all matrix products once more, in bf16 and in the order of the AMX tiles. Packed
// once per optimiser step from the fp32 masters; both ways round, since backward multiplies by the
// transpose.
#pragma once

#include <vector>

#include "kernels/bf16_gemm.h"
#include "model/model.h"

namespace clearhead {

struct PackedMatrix {
  PackedBf16 forward;     // W
  PackedBf16 transposed;  // W^T
};

struct PackedWeights {
  struct Block {
    PackedMatrix c_attn, attn_c_proj, c_fc, mlp_c_proj;
  };
  std::vector<Block> blocks;
  PackedMatrix lm_head;  // forward: [C,V] from lm_head^T; transposed: [V,C]

  // Allocates on the first call only.
  void Pack(const Model& model);
};

}  // namespace clearhead
