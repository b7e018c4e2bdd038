// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <cmath>
#include <numbers>
#include <string>

#include "core/error.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/parameters.h"

namespace clearhead {
namespace {

void ReadAttentionKind(ConfigFields& fields, ModelConfig* config) {
  // The field of the published sparse checkpoints: gates at bias 0.
  if (fields.Flag("use_sparse_attn", false)) config->attention = AttentionKind::kGated;
  const Json* ours = fields.Find("clearhead");
  if (ours == nullptr) return;
  ConfigFields own(*ours, fmt::format("{}, \"clearhead\"", fields.source()));
  const Json* kind = own.Find("attention");
  if (kind != nullptr) {
    if (*kind == "gated") {
      config->attention = AttentionKind::kGated;
    } else if (*kind == "softmax") {
      config->attention = AttentionKind::kSoftmax;
    } else {
      Fail("{}: 'attention' is {}, expected \"softmax\" or \"gated\"", own.source(), kind->dump());
    }
  }
  config->gate_bias = static_cast<float>(own.Number("gate_bias", 0.0));
  config->gate_bias_by_head = own.Flag("gate_bias_by_head", false);
  if (config->gate_bias_by_head && config->attention != AttentionKind::kGated) {
    Fail("{}: 'gate_bias_by_head' is true, but the attention is not \"gated\"", own.source());
  }
  own.RefuseUnknown();
}

std::int32_t TokenId(const Json& value, std::string_view name, const std::string& source) {
  if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > (1 << 24)) {
    Fail("{}: '{}' is {}, expected a token id", source, name, value.dump());
  }
  return value.get<std::int32_t>();
}

void ReadSpecialTokens(ConfigFields& fields, ModelConfig* config) {
  if (const Json* eos = fields.Find("eos_token_id"); eos != nullptr) {
    if (eos->is_array()) {
      for (const Json& id : *eos) {
        config->end_of_text.push_back(TokenId(id, "eos_token_id", fields.source()));
      }
    } else {
      config->end_of_text.push_back(TokenId(*eos, "eos_token_id", fields.source()));
    }
  }
  if (const Json* bos = fields.Find("bos_token_id"); bos != nullptr) {
    config->begin_of_text = TokenId(*bos, "bos_token_id", fields.source());
  }
}

std::string KnownTypes() {
  std::string names;
  for (const Family* family : Families()) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", family->model_type);
  }
  return names;
}

// Which sizes must fit each other, whatever the family.
void CheckSizes(const ModelConfig& c, const std::string& source) {
  if (c.heads % c.kv_heads() != 0) {
    Fail("{}: {} attention heads cannot share {} key/value heads evenly", source, c.heads,
         c.kv_heads());
  }
  if (c.position == PositionKind::kRotary && c.head_size() % 2 != 0) {
    Fail("{}: the head size {} is odd, but rotary positions turn pairs of values", source,
         c.head_size());
  }
}

}  // namespace

float ModelConfig::AttentionScale(std::int64_t layer) const {
  double scale = 1.0;
  if (scale_attention) scale /= std::sqrt(static_cast<double>(head_size()));
  if (scale_by_inverse_layer) scale /= static_cast<double>(layer + 1);
  return static_cast<float>(scale);
}

std::vector<double> ModelConfig::RotaryFrequencies() const {
  std::vector<double> frequencies;
  if (position != PositionKind::kRotary) return frequencies;
  const auto D = static_cast<double>(head_size());
  for (std::int64_t i = 0; i < head_size() / 2; ++i) {
    double f = std::pow(rotary.theta, -2.0 * static_cast<double>(i) / D);
    if (rotary.scaling == Rotary::Scaling::kLinear) f /= rotary.factor;
    if (rotary.scaling == Rotary::Scaling::kByWavelength) {
      // Long wavelengths are stretched, short ones kept, those between blended.
      const double turns =
          static_cast<double>(rotary.original_positions) * f / (2.0 * std::numbers::pi);
      if (turns < rotary.low_frequency_factor) {
        f /= rotary.factor;
      } else if (turns <= rotary.high_frequency_factor) {
        const double kept = (turns - rotary.low_frequency_factor) /
                            (rotary.high_frequency_factor - rotary.low_frequency_factor);
        f = (1.0 - kept) * f / rotary.factor + kept * f;
      }
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

std::int64_t ModelConfig::ParameterCount() const {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : ParameterTable(*this)) count += spec.shape.size();
  return count;
}

ModelConfig ParseConfig(const Json& json, std::string_view source) {
  ConfigFields fields(json, std::string(source));
  ModelConfig config;
  const Json* type = fields.Find("model_type");
  config.family = type == nullptr || !type->is_string() ? Families().front()
                                                        : FindFamily(type->get<std::string>());
  if (config.family == nullptr || (type != nullptr && !type->is_string())) {
    Fail("{}: 'model_type' is {}, expected one of {}", source, type->dump(), KnownTypes());
  }
  config.family->read(fields, &config);
  ReadSpecialTokens(fields, &config);
  ReadAttentionKind(fields, &config);
  fields.MustBeFalse("is_encoder_decoder", "encoder-decoder models are not supported");
  fields.RefuseUnknown();
  CheckSizes(config, fields.source());
  return config;
}

ModelConfig ReadConfig(const std::filesystem::path& model_directory) {
  const std::filesystem::path path = model_directory / "config.json";
  return ParseConfig(ReadJsonFile(path, /*max_bytes=*/1 << 20), path.string());
}

Json ToJson(const ModelConfig& config, std::string_view dtype) {
  const Family& family = FamilyOf(config);
  Json json = {{"architectures", {family.architecture}},
               {"model_type", family.model_type},
               {"vocab_size", config.vocabulary},
               {"tie_word_embeddings", config.tied},
               {"dtype", dtype}};
  family.write(config, &json);
  // Null where there is none: Hugging Face would fill in its own defaults.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  if (config.begin_of_text) json["bos_token_id"] = *config.begin_of_text;
  if (config.end_of_text.size() == 1) json["eos_token_id"] = config.end_of_text.front();
  if (config.end_of_text.size() > 1) json["eos_token_id"] = config.end_of_text;
  if (config.attention == AttentionKind::kGated) {
    json["clearhead"] = {{"attention", "gated"},
                         {"gate_bias", std::stod(fmt::format("{}", config.gate_bias))}};
    if (config.gate_bias_by_head) json["clearhead"]["gate_bias_by_head"] = true;
  }
  return json;
}

}  // namespace clearhead
