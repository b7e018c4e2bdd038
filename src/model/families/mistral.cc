// SPDX-License-Identifier: MIT
// Mistral without a sliding window: a Llama without biases.
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, fields.PositiveFloat("rms_norm_eps", 1e-6f));
  relatives::RefuseWindow(fields, /*in_force=*/true);
  config->qkv_bias = config->projection_bias = config->mlp_bias = false;
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  json->erase("attention_bias");
  (*json)["sliding_window"] = nullptr;
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(config, {});
}

}  // namespace

const Family kMistral{"mistral", "MistralForCausalLM", "model.",          Order::kOutIn, Read,
                      Write,     Parameters,           relatives::Ignores};

}  // namespace clearhead
