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
  std::vector<RoleTensors<PackedMatrix>> blocks;  // by the role of the weight
  PackedMatrix output;                            // W_U: [C,V], and [V,C]

  // Allocates on the first call only.
  void Pack(const Model& model);
};

}  // namespace clearhead
