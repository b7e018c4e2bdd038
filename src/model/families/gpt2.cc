// SPDX-License-Identifier: MIT
// GPT-2: layer norms before each half, learned positions, one matrix for query | key | value, a
// plain MLP, biases everywhere. Matrices are Conv1D's: [in, out].
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "model/families/families.h"

namespace clearhead {
namespace {

void Read(ConfigFields& fields, ModelConfig* config) {
  config->layers = fields.Extent("n_layer", 4096, std::nullopt);
  config->heads = fields.Extent("n_head", 4096, std::nullopt);
  config->width = fields.Extent("n_embd", 1 << 18, std::nullopt);
  config->vocabulary = fields.Extent("vocab_size", 1 << 24, std::nullopt);
  config->positions = fields.Extent("n_positions", 1 << 24, std::nullopt);
  config->inner = fields.Extent("n_inner", 1 << 20, 4 * config->width);
  if (config->width % config->heads != 0) {
    Fail("{}: n_embd {} is not a multiple of n_head {}", fields.source(), config->width,
         config->heads);
  }
  config->norm_epsilon = fields.PositiveFloat("layer_norm_epsilon", 1e-5f);
  if (const Json* name = fields.Find("activation_function"); name != nullptr) {
    const auto activation =
        name->is_string() ? ParseActivation(name->get<std::string>()) : std::optional<Activation>();
    if (!activation) {
      Fail("{}: 'activation_function' is {}, expected gelu_new, gelu, relu, silu or tanh",
           fields.source(), name->dump());
    }
    config->activation = *activation;
  }
  config->scale_attention = fields.Flag("scale_attn_weights", true);
  config->scale_by_inverse_layer = fields.Flag("scale_attn_by_inverse_layer_idx", false);
  config->tied = fields.Flag("tie_word_embeddings", true);
  fields.Flag("reorder_and_upcast_attn", false);  // same mathematics, another order of rounding
  fields.MustBeFalse("add_cross_attention", "cross-attention is not supported");
}

void Write(const ModelConfig& config, Json* json) {
  json->update({{"n_layer", config.layers},
                {"n_head", config.heads},
                {"n_embd", config.width},
                {"n_inner", config.inner},
                {"n_positions", config.positions},
                {"activation_function", ToText(config.activation)},
                // The shortest decimal of the float, so that 1e-05 stays 1e-05.
                {"layer_norm_epsilon", std::stod(fmt::format("{}", config.norm_epsilon))},
                {"scale_attn_weights", config.scale_attention},
                {"scale_attn_by_inverse_layer_idx", config.scale_by_inverse_layer},
                {"attn_pdrop", 0.0},
                {"embd_pdrop", 0.0},
                {"resid_pdrop", 0.0}});
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config) {
  const std::int64_t C = config.width, F = config.inner, V = config.vocabulary;
  std::vector<ParameterSpec> table = {
      {"wte.weight", {V, C}, Role::kTokenEmbedding},
      {"wpe.weight", {config.positions, C}, Role::kPositionEmbedding},
  };
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const std::string h = fmt::format("h.{}.", l);
    table.push_back({h + "ln_1.weight", {C}, Role::kAttentionNormWeight, l});
    table.push_back({h + "ln_1.bias", {C}, Role::kAttentionNormBias, l});
    table.push_back({h + "attn.c_attn.weight", {C, 3 * C}, Role::kQkvWeight, l});
    table.push_back({h + "attn.c_attn.bias", {3 * C}, Role::kQkvBias, l});
    table.push_back({h + "attn.c_proj.weight", {C, C}, Role::kProjectionWeight, l});
    table.push_back({h + "attn.c_proj.bias", {C}, Role::kProjectionBias, l});
    table.push_back({h + "ln_2.weight", {C}, Role::kMlpNormWeight, l});
    table.push_back({h + "ln_2.bias", {C}, Role::kMlpNormBias, l});
    table.push_back({h + "mlp.c_fc.weight", {C, F}, Role::kMlpInWeight, l});
    table.push_back({h + "mlp.c_fc.bias", {F}, Role::kMlpInBias, l});
    table.push_back({h + "mlp.c_proj.weight", {F, C}, Role::kMlpOutWeight, l});
    table.push_back({h + "mlp.c_proj.bias", {C}, Role::kMlpOutBias, l});
  }
  table.push_back({"ln_f.weight", {C}, Role::kFinalNormWeight});
  table.push_back({"ln_f.bias", {C}, Role::kFinalNormBias});
  if (!config.tied) table.push_back({"lm_head.weight", {V, C}, Role::kOutput});
  return table;
}

// "h.3.attn.bias" and "h.3.attn.masked_bias": the causal mask, stored by older versions.
bool Ignores(std::string_view name) {
  if (!name.starts_with("h.")) return false;
  name.remove_prefix(2);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits == 0) return false;
  name.remove_prefix(digits);
  return name == ".attn.bias" || name == ".attn.masked_bias";
}

}  // namespace

const Family kGpt2{"gpt2", "GPT2LMHeadModel", "transformer.", Order::kInOut, Read,
                   Write,  Parameters,        Ignores};

}  // namespace clearhead
