// SPDX-License-Identifier: MIT
// Llama 2 and 3, and what has their form: RMS norms before each half, rotary positions, shared keys
// and values, a gated MLP, optional biases.
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, fields.PositiveFloat("rms_norm_eps", 1e-6f));
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  (*json)["mlp_bias"] = config.mlp_bias;
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(config, {});
}

}  // namespace

const Family kLlama{"llama", "LlamaForCausalLM", "model.",          Order::kOutIn, Read,
                    Write,   Parameters,         relatives::Ignores};

}  // namespace clearhead
