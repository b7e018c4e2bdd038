// SPDX-License-Identifier: MIT
// A model's parameters by role. Each family lists its own (families/): name in the file, shape and
// role; loading, saving, tests and the optimiser walk the list, and nothing else knows names.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "kernels/weight.h"
#include "model/config.h"

namespace clearhead {

// Letters: C width, H heads, K key/value heads, D head size, F inner width, V vocabulary. Matrices
// are [in, out] here; a family may store them the other way round (Family::order).
enum class Role {
  kTokenEmbedding,     // [V, C]
  kPositionEmbedding,  // [positions, C]
  kFinalNormWeight,    // [C]
  kFinalNormBias,
  kOutput,  // [V, C]; absent when tied
  // Of each block:
  kAttentionNormWeight,  // [C]
  kAttentionNormBias,
  kQkvWeight,  // [C, (H + 2K) D]: query | key | value, where one matrix makes all three
  kQkvBias,
  kQueryWeight,  // [C, H D], and so on, where they are apart
  kQueryBias,
  kKeyWeight,
  kKeyBias,
  kValueWeight,
  kValueBias,
  kQueryNorm,         // [D] or [H D]
  kKeyNorm,           // [D] or [K D]
  kGateBias,          // [H]: added to the config's gate bias, head by head
  kProjectionWeight,  // [H D, C]: W_O, heads side by side
  kProjectionBias,
  kMlpNormWeight,
  kMlpNormBias,
  kMlpGateWeight,  // [C, F]
  kMlpGateBias,
  kMlpInWeight,  // [C, F]
  kMlpInBias,
  kMlpOutWeight,  // [F, C]
  kMlpOutBias,
};
inline constexpr std::size_t kRoleCount = static_cast<std::size_t>(Role::kMlpOutBias) + 1;
inline constexpr std::int64_t kOutsideBlocks = -1;

bool IsNormWeight(Role role);
bool IsAttention(Role role);     // what makes queries, keys, values and the heads' output
bool WritesToStream(Role role);  // the matrices whose output joins the residual stream

struct ParameterSpec {
  std::string name;  // the library's, without the prefix of the body
  Shape shape;       // as stored
  Role role;
  std::int64_t layer = kOutsideBlocks;

  bool decays() const { return shape.rank() == 2; }  // matrices yes, biases and norms no
};

// One slot per role: Weight for weights, float* for gradients and weights that change.
template <typename Slot>
struct RoleTensors {
  std::array<Slot, kRoleCount> slots{};
  Slot& operator[](Role role) { return slots[static_cast<std::size_t>(role)]; }
  const Slot& operator[](Role role) const { return slots[static_cast<std::size_t>(role)]; }
};

template <typename Slot>
struct ModelTensors {
  RoleTensors<Slot> outside;
  std::vector<RoleTensors<Slot>> blocks;

  Slot& operator()(Role role, std::int64_t layer = kOutsideBlocks) {
    return layer == kOutsideBlocks ? outside[role] : blocks[static_cast<std::size_t>(layer)][role];
  }
  const Slot& operator()(Role role, std::int64_t layer = kOutsideBlocks) const {
    return layer == kOutsideBlocks ? outside[role] : blocks[static_cast<std::size_t>(layer)][role];
  }
};
using ModelWeights = ModelTensors<Weight>;
using ModelValues = ModelTensors<float*>;

// The output matrix [V, C]: a tied model's is its token embedding.
template <typename Slot>
const Slot& OutputMatrix(const ModelConfig& config, const ModelTensors<Slot>& tensors) {
  return tensors(config.tied ? Role::kTokenEmbedding : Role::kOutput);
}

// All stored tensors in the file's order.
std::vector<ParameterSpec> ParameterTable(const ModelConfig& config);

// The name in the library's own files: the output matrix is the language model's own, everything
// else its body's.
std::string LibraryName(const ModelConfig& config, const ParameterSpec& spec);

// Calls visit(spec, slot) for every stored tensor in file order; slot is there to read or fill.
template <typename Slot, typename Visit>
void VisitParameters(const ModelConfig& config, ModelTensors<Slot>& tensors, const Visit& visit) {
  tensors.blocks.resize(static_cast<std::size_t>(config.layers));
  for (const ParameterSpec& spec : ParameterTable(config)) {
    visit(spec, tensors(spec.role, spec.layer));
  }
}

// Points every slot into one block that holds the tensors one after another in file order (as the
// trainer keeps weights, gradients and moments). The block holds config.ParameterCount() values.
ModelValues BindContiguous(const ModelConfig& config, float* block);
ModelWeights BindWeights(const ModelConfig& config, const float* block);

}  // namespace clearhead
