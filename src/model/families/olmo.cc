// SPDX-License-Identifier: MIT
// OLMo: a Llama whose norms are layer norms without parameters and whose queries, keys and values
// may be clamped.
#include <cmath>

#include "core/error.h"
#include "model/families/families.h"
#include "model/families/relatives.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  relatives::Read(fields, config, 1e-5f);
  config->norm = NormKind::kLayer;
  config->norm_has_weight = false;
  config->mlp_bias = false;
  if (fields.Find("clip_qkv") != nullptr) {
    config->clip_qkv = fields.PositiveFloat("clip_qkv", 0.0f);
  }
}

void Write(const ModelConfig& config, Json* json) {
  relatives::Write(config, json);
  json->erase("rms_norm_eps");
  if (config.given_head_size == 0) json->erase("head_dim");
  (*json)["clip_qkv"] = nullptr;
  if (config.clip_qkv) (*json)["clip_qkv"] = std::stod(fmt::format("{}", *config.clip_qkv));
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  return relatives::Parameters(config, {});
}

}  // namespace

const Family kOlmo{"olmo", "OlmoForCausalLM", "model.",          Order::kOutIn, Read,
                   Write,  Parameters,        relatives::Ignores};

}  // namespace clearhead
