// SPDX-License-Identifier: MIT
// What Llama and its relatives share: the names of their fields and tensors, rotary positions, a
// gated MLP, matrices stored [out, in].
#pragma once

#include "model/family.h"

namespace clearhead::relatives {

// Sizes, activation, rotary positions, biases and tying. `epsilon` is the library's default.
void Read(ConfigFields& fields, ModelConfig* config, float epsilon);

// Refuses an attention window that is in force.
void RefuseWindow(ConfigFields& fields, bool in_force);

void Write(const ModelConfig& config, Json* json);

// Names of the norms around attention and MLP; empty: the family stores none.
struct NormNames {
  std::string_view attention = "input_layernorm";
  std::string_view mlp = "post_attention_layernorm";
  std::string_view last = "norm";
};
std::vector<ParameterSpec> Parameters(const ModelConfig& config, const NormNames& norms);

// "layers.3.self_attn.rotary_emb.inv_freq": a table that older files hold.
bool Ignores(std::string_view name);

}  // namespace clearhead::relatives
