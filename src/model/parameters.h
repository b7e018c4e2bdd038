// SPDX-License-Identifier: MIT
// The one list of a GPT-2's parameters. Loading, saving, tests and the optimiser all walk it;
// nothing else knows names or order.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"
#include "model/config.h"

namespace clearhead {

// The tensors of one block, as pointers: T = const float for weights, float for gradients.
// Letters: C width, F inner.
template <typename T>
struct BlockTensors {
  T* ln_1_weight = nullptr;    // [C]
  T* ln_1_bias = nullptr;      // [C]
  T* c_attn_weight = nullptr;  // [C, 3C]: query | key | value columns, heads contiguous in each
  T* c_attn_bias = nullptr;    // [3C]
  T* attn_c_proj_weight = nullptr;  // [C, C]: rows are heads, contiguous
  T* attn_c_proj_bias = nullptr;    // [C]
  T* ln_2_weight = nullptr;         // [C]
  T* ln_2_bias = nullptr;           // [C]
  T* c_fc_weight = nullptr;         // [C, F]
  T* c_fc_bias = nullptr;           // [F]
  T* mlp_c_proj_weight = nullptr;   // [F, C]
  T* mlp_c_proj_bias = nullptr;     // [C]
};

template <typename T>
struct ModelTensors {
  T* wte = nullptr;  // [V, C]
  T* wpe = nullptr;  // [positions, C]
  std::vector<BlockTensors<T>> blocks;
  T* ln_f_weight = nullptr;  // [C]
  T* ln_f_bias = nullptr;    // [C]
  T* lm_head = nullptr;      // [V, C]; the same pointer as wte when tied
};

struct ParameterSpec {
  std::string name;  // Hugging Face's, without the "transformer." prefix
  Shape shape;
  bool decays;  // weight decay applies: matrices yes, biases and norms no
};

// The name in GPT2LMHeadModel: lm_head is the language model's own, everything else its body's.
inline std::string LibraryName(const ParameterSpec& spec) {
  return spec.name == "lm_head.weight" ? spec.name : "transformer." + spec.name;
}

// Calls visit(spec, slot) for every stored tensor in file order; slot is the T*& to read or fill.
// Afterwards a tied lm_head is wte.
template <typename T, typename Visit>
void VisitParameters(const ModelConfig& config, ModelTensors<T>& tensors, const Visit& visit) {
  const std::int64_t C = config.width, F = config.inner, V = config.vocabulary;
  const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                          T*& slot) {
    visit(ParameterSpec{name, {rows, columns}, /*decays=*/true}, slot);
  };
  const auto vector = [&](const std::string& name, std::int64_t size, T*& slot) {
    visit(ParameterSpec{name, {size}, /*decays=*/false}, slot);
  };
  matrix("wte.weight", V, C, tensors.wte);
  matrix("wpe.weight", config.positions, C, tensors.wpe);
  tensors.blocks.resize(static_cast<std::size_t>(config.layers));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    BlockTensors<T>& block = tensors.blocks[static_cast<std::size_t>(layer)];
    const std::string h = "h." + std::to_string(layer) + ".";
    vector(h + "ln_1.weight", C, block.ln_1_weight);
    vector(h + "ln_1.bias", C, block.ln_1_bias);
    matrix(h + "attn.c_attn.weight", C, 3 * C, block.c_attn_weight);
    vector(h + "attn.c_attn.bias", 3 * C, block.c_attn_bias);
    matrix(h + "attn.c_proj.weight", C, C, block.attn_c_proj_weight);
    vector(h + "attn.c_proj.bias", C, block.attn_c_proj_bias);
    vector(h + "ln_2.weight", C, block.ln_2_weight);
    vector(h + "ln_2.bias", C, block.ln_2_bias);
    matrix(h + "mlp.c_fc.weight", C, F, block.c_fc_weight);
    vector(h + "mlp.c_fc.bias", F, block.c_fc_bias);
    matrix(h + "mlp.c_proj.weight", F, C, block.mlp_c_proj_weight);
    vector(h + "mlp.c_proj.bias", C, block.mlp_c_proj_bias);
  }
  vector("ln_f.weight", C, tensors.ln_f_weight);
  vector("ln_f.bias", C, tensors.ln_f_bias);
  if (config.tied) {
    tensors.lm_head = tensors.wte;
  } else {
    matrix("lm_head.weight", V, C, tensors.lm_head);
  }
}

// The list by itself.
inline std::vector<ParameterSpec> ParameterTable(const ModelConfig& config) {
  std::vector<ParameterSpec> table;
  ModelTensors<const float> unused;
  VisitParameters(config, unused,
                  [&](const ParameterSpec& spec, const float*&) { table.push_back(spec); });
  return table;
}

// Points every slot into one block that holds the tensors one after another in file order (as the
// trainer keeps weights, gradients and moments). The block holds config.ParameterCount() values.
template <typename T>
ModelTensors<T> BindContiguous(const ModelConfig& config, T* block) {
  ModelTensors<T> tensors;
  VisitParameters(config, tensors, [&](const ParameterSpec& spec, T*& slot) {
    slot = block;
    block += spec.shape.size();
  });
  return tensors;
}

}  // namespace clearhead
