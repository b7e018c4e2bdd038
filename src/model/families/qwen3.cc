// SPDX-License-Identifier: MIT
// Qwen3: a Llama whose queries and keys pass an RMS norm over each head before they turn.
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, fields.PositiveFloat("rms_norm_eps", 1e-6f));
  relatives::RefuseWindow(fields, fields.Flag("use_sliding_window", false));
  config->mlp_bias = false;
  config->query_key_norm = QueryKeyNorm::kHead;
  if (config->given_head_size == 0) config->given_head_size = 128;  // the library's default
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  (*json)["use_sliding_window"] = false;
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(config, {});
}

}  // namespace

const Family kQwen3{"qwen3", "Qwen3ForCausalLM", "model.",          Order::kOutIn, Read,
                    Write,   Parameters,         relatives::Ignores};

}  // namespace clearhead
