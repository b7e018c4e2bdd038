// SPDX-License-Identifier: MIT
// Qwen2: a Llama with biases on queries, keys and values only.
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, fields.PositiveFloat("rms_norm_eps", 1e-6f));
  relatives::RefuseWindow(fields, fields.Flag("use_sliding_window", false));
  config->qkv_bias = true;
  config->projection_bias = config->mlp_bias = false;
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  json->erase("attention_bias");
  (*json)["use_sliding_window"] = false;
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(config, {});
}

}  // namespace

const Family kQwen2{"qwen2", "Qwen2ForCausalLM", "model.",          Order::kOutIn, Read,
                    Write,   Parameters,         relatives::Ignores};

}  // namespace clearhead
