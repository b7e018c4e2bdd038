// SPDX-License-Identifier: MIT
// The weights of all matrix products once more, packed for the products: exact fp32, or bf16 on AMX
// tiles. Backward multiplies by the transpose, which is packed too where it is asked for.
#pragma once

#include <optional>
#include <vector>

#include "kernels/linear.h"
#include "kernels/packed_matrix.h"
#include "model/model.h"

namespace clearhead {

struct PackedLayer {
  PackedMatrix forward;     // W
  PackedMatrix transposed;  // W^T
};

enum class PackedWays { kForward, kBoth };

struct PackedWeights {
  std::vector<RoleTensors<PackedLayer>> blocks;  // by the role of the weight
  PackedLayer output;                            // W_U: [C,V], and [V,C]
  PackedWays ways = PackedWays::kForward;

  // Allocates on the first call only.
  void Pack(const Model& model, PackedFor purpose, PackedWays which);
  // Lets a layer multiply with what was packed of it.
  void Use(const PackedLayer& packed, Linear* layer) const;
};

// What training packs its weights for after every step. Models that are used as they are mapped
// (kWidenUpTo) are not packed for fp32: both ways of them would be more memory than the rest.
std::optional<PackedFor> PackedInTraining(const ModelConfig& config, bool bf16);

// Packs a model that will be used more than once, in fp32: from then on every pass multiplies with
// the packed weights, to the same bits. What they were read from stays where it is: pages of a file
// that nobody touches are the system's to take back.
void PackForUse(Model* model, PackedWays ways = PackedWays::kForward);

}  // namespace clearhead
