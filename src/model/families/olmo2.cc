// SPDX-License-Identifier: MIT
// OLMo-2: a Llama whose norms stand behind attention and MLP instead of before them, and whose
// queries and keys pass an RMS norm over all heads together before they turn.
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, fields.PositiveFloat("rms_norm_eps", 1e-5f));
  config->norm_place = NormPlace::kAfter;
  config->mlp_bias = false;
  config->query_key_norm = QueryKeyNorm::kWhole;
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  if (config.given_head_size == 0) json->erase("head_dim");
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(
      config, {.attention = "post_attention_layernorm", .mlp = "post_feedforward_layernorm"});
}

}  // namespace

const Family kOlmo2{"olmo2", "Olmo2ForCausalLM", "model.",          Order::kOutIn, Read,
                    Write,   Parameters,         relatives::Ignores};

}  // namespace clearhead
