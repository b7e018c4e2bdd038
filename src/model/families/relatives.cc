// SPDX-License-Identifier: MIT
#include "model/families/relatives.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"

namespace clearhead::relatives {
namespace {

// {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8, ...}: `rope_parameters` of newer files,
// `rope_scaling` (often with "type") of older ones.
void ReadScaling(const Json& json, const std::string& source, ConfigFields& top,
                 ModelConfig* config) {
  ConfigFields fields(json, source);
  Rotary& rotary = config->rotary;
  rotary.theta = fields.Number("rope_theta", rotary.theta);
  const Json* name = fields.Find("rope_type");
  const Json* older = fields.Find("type");
  if (name == nullptr) name = older;
  if (name == nullptr || *name == "default") {
    fields.MustBeAbsent("factor", "a rope type of \"default\" does not scale");
  } else if (*name == "linear" || *name == "llama3") {
    rotary.scaling = *name == "linear" ? Rotary::Scaling::kLinear : Rotary::Scaling::kByWavelength;
    if (fields.Find("factor") == nullptr) Fail("{}: 'factor' is missing", source);
    rotary.factor = fields.Number("factor", 1.0);
    if (!(rotary.factor > 0.0)) Fail("{}: 'factor' must be positive", source);
  } else {
    Fail("{}: the rope type {} is not supported; expected \"default\", \"linear\" or \"llama3\"",
         source, name->dump());
  }
  if (rotary.scaling == Rotary::Scaling::kByWavelength) {
    rotary.low_frequency_factor = fields.Number("low_freq_factor", 1.0);
    rotary.high_frequency_factor = fields.Number("high_freq_factor", 4.0);
    constexpr std::string_view kOriginal = "original_max_position_embeddings";
    rotary.original_positions = fields.Extent(kOriginal, std::int64_t{1} << 24, config->positions);
    rotary.original_positions =
        top.Extent(kOriginal, std::int64_t{1} << 24, rotary.original_positions);
    if (!(rotary.low_frequency_factor < rotary.high_frequency_factor)) {
      Fail("{}: 'low_freq_factor' {} must be below 'high_freq_factor' {}", source,
           rotary.low_frequency_factor, rotary.high_frequency_factor);
    }
  } else {
    fields.Find("original_max_position_embeddings");  // plays no part
  }
  fields.Find("partial_rotary_factor");
  if (fields.Number("partial_rotary_factor", 1.0) != 1.0) {
    Fail("{}: 'partial_rotary_factor' is not 1, but partial rotation is not supported", source);
  }
  fields.RefuseUnknown();
}

void ReadRotary(ConfigFields& fields, ModelConfig* config) {
  config->position = PositionKind::kRotary;
  config->rotary.theta = fields.Number("rope_theta", 10000.0);
  const Json* scaling = fields.Find("rope_scaling");
  const Json* parameters = fields.Find("rope_parameters");
  const std::string_view name = scaling != nullptr ? "rope_scaling" : "rope_parameters";
  if (scaling == nullptr) scaling = parameters;
  if (scaling != nullptr) {
    ReadScaling(*scaling, fmt::format("{}, \"{}\"", fields.source(), name), fields, config);
  }
  if (!(config->rotary.theta > 1.0)) {
    Fail("{}: 'rope_theta' is {}, expected a number above 1", fields.source(),
         config->rotary.theta);
  }
  if (fields.Number("partial_rotary_factor", 1.0) != 1.0) {
    Fail("{}: 'partial_rotary_factor' is not 1, but partial rotation is not supported",
         fields.source());
  }
}

}  // namespace

void Read(ConfigFields& fields, ModelConfig* config, float epsilon) {
  config->layers = fields.Extent("num_hidden_layers", 4096, std::nullopt);
  config->heads = fields.Extent("num_attention_heads", 4096, std::nullopt);
  config->width = fields.Extent("hidden_size", 1 << 18, std::nullopt);
  config->vocabulary = fields.Extent("vocab_size", 1 << 24, std::nullopt);
  config->positions = fields.Extent("max_position_embeddings", 1 << 24, std::nullopt);
  config->inner = fields.Extent("intermediate_size", 1 << 20, std::nullopt);
  config->key_value_heads = fields.Extent("num_key_value_heads", 4096, config->heads);
  if (fields.Find("head_dim") != nullptr) {
    config->given_head_size = fields.Extent("head_dim", 1 << 16, std::nullopt);
  } else if (config->width % config->heads != 0) {
    Fail("{}: hidden_size {} is not a multiple of num_attention_heads {}, and there is no head_dim",
         fields.source(), config->width, config->heads);
  }
  config->norm = NormKind::kRms;
  config->norm_has_bias = false;
  config->norm_epsilon = epsilon;
  config->activation = Activation::kSilu;
  if (const Json* name = fields.Find("hidden_act"); name != nullptr) {
    const auto activation =
        name->is_string() ? ParseActivation(name->get<std::string>()) : std::optional<Activation>();
    if (!activation) {
      Fail("{}: 'hidden_act' is {}, expected silu, gelu, gelu_new, relu or tanh", fields.source(),
           name->dump());
    }
    config->activation = *activation;
  }
  config->mlp = MlpKind::kGated;
  config->tied = fields.Flag("tie_word_embeddings", false);
  config->qkv_bias = config->projection_bias = fields.Flag("attention_bias", false);
  config->mlp_bias = fields.Flag("mlp_bias", false);
  ReadRotary(fields, config);
  if (const Json* types = fields.Find("layer_types"); types != nullptr) {
    for (const Json& type : *types) {
      if (type != "full_attention") {
        Fail("{}: 'layer_types' has {}, but only \"full_attention\" is supported", fields.source(),
             type.dump());
      }
    }
  }
}

void RefuseWindow(ConfigFields& fields, bool in_force) {
  const Json* window = fields.Find("sliding_window");
  if (window != nullptr && in_force) {
    Fail(
        "{}: 'sliding_window' is {}, but sliding windows are not supported; a model whose window "
        "is null runs",
        fields.source(), window->dump());
  }
}

void Write(const ModelConfig& config, Json* json) {
  json->update({{"num_hidden_layers", config.layers},
                {"num_attention_heads", config.heads},
                {"num_key_value_heads", config.kv_heads()},
                {"head_dim", config.head_size()},
                {"hidden_size", config.width},
                {"intermediate_size", config.inner},
                {"max_position_embeddings", config.positions},
                {"hidden_act", ToText(config.activation)},
                {"rms_norm_eps", std::stod(fmt::format("{}", config.norm_epsilon))},
                {"attention_bias", config.qkv_bias},
                {"attention_dropout", 0.0},
                // The older layout: newer versions of the library read it too.
                {"rope_theta", config.rotary.theta},
                {"rope_scaling", nullptr}});
  const Rotary& rotary = config.rotary;
  if (rotary.scaling == Rotary::Scaling::kLinear) {
    (*json)["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rotary.factor}};
  } else if (rotary.scaling == Rotary::Scaling::kByWavelength) {
    (*json)["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", rotary.factor},
                               {"low_freq_factor", rotary.low_frequency_factor},
                               {"high_freq_factor", rotary.high_frequency_factor},
                               {"original_max_position_embeddings", rotary.original_positions}};
  }
}

std::vector<ParameterSpec> Parameters(const ModelConfig& config, const NormNames& norms) {
  const std::int64_t C = config.width, F = config.inner, V = config.vocabulary;
  const std::int64_t Q = config.heads_width(), KV = config.kv_width(), D = config.head_size();
  std::vector<ParameterSpec> table = {{"embed_tokens.weight", {V, C}, Role::kTokenEmbedding}};
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const std::string layer = fmt::format("layers.{}.", l);
    const auto add = [&](std::string_view name, Shape shape, Role role) {
      table.push_back({layer + std::string(name), shape, role, l});
    };
    // Weight [out, in] and, where the family has it, bias [out].
    const auto linear = [&](std::string_view name, std::int64_t in, std::int64_t out, bool has_bias,
                            Role weight, Role bias) {
      add(fmt::format("{}.weight", name), {out, in}, weight);
      if (has_bias) add(fmt::format("{}.bias", name), {out}, bias);
    };
    linear("self_attn.q_proj", C, Q, config.qkv_bias, Role::kQueryWeight, Role::kQueryBias);
    linear("self_attn.k_proj", C, KV, config.qkv_bias, Role::kKeyWeight, Role::kKeyBias);
    linear("self_attn.v_proj", C, KV, config.qkv_bias, Role::kValueWeight, Role::kValueBias);
    linear("self_attn.o_proj", Q, C, config.projection_bias, Role::kProjectionWeight,
           Role::kProjectionBias);
    if (config.query_key_norm != QueryKeyNorm::kNone) {
      const bool whole = config.query_key_norm == QueryKeyNorm::kWhole;
      add("self_attn.q_norm.weight", {whole ? Q : D}, Role::kQueryNorm);
      add("self_attn.k_norm.weight", {whole ? KV : D}, Role::kKeyNorm);
    }
    linear("mlp.gate_proj", C, F, config.mlp_bias, Role::kMlpGateWeight, Role::kMlpGateBias);
    linear("mlp.up_proj", C, F, config.mlp_bias, Role::kMlpInWeight, Role::kMlpInBias);
    linear("mlp.down_proj", F, C, config.mlp_bias, Role::kMlpOutWeight, Role::kMlpOutBias);
    if (config.norm_has_weight) {
      add(fmt::format("{}.weight", norms.attention), {C}, Role::kAttentionNormWeight);
      add(fmt::format("{}.weight", norms.mlp), {C}, Role::kMlpNormWeight);
    }
  }
  if (config.norm_has_weight) {
    table.push_back({fmt::format("{}.weight", norms.last), {C}, Role::kFinalNormWeight});
  }
  if (!config.tied) table.push_back({"lm_head.weight", {V, C}, Role::kOutput});
  return table;
}

bool Ignores(std::string_view name) {
  return name.starts_with("layers.") && name.ends_with(".self_attn.rotary_emb.inv_freq");
}

}  // namespace clearhead::relatives
