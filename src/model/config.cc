// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <cmath>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/error.h"
#include "model/parameters.h"

namespace clearhead {
namespace {

// Fields of config.json that change no number of an evaluation without dropout: provenance,
// training settings, generation defaults, heads of other tasks.
const std::unordered_set<std::string_view> kHarmless = {"_attn_implementation_autoset",
                                                        "_name_or_path",
                                                        "_num_labels",
                                                        "architectures",
                                                        "attn_pdrop",
                                                        "bad_words_ids",
                                                        "bos_token_id",
                                                        "chunk_size_feed_forward",
                                                        "decoder_start_token_id",
                                                        "diversity_penalty",
                                                        "do_sample",
                                                        "dtype",
                                                        "early_stopping",
                                                        "embd_pdrop",
                                                        "encoder_no_repeat_ngram_size",
                                                        "exponential_decay_length_penalty",
                                                        "finetuning_task",
                                                        "forced_bos_token_id",
                                                        "forced_eos_token_id",
                                                        "gradient_checkpointing",
                                                        "id2label",
                                                        "initializer_range",
                                                        "label2id",
                                                        "length_penalty",
                                                        "max_length",
                                                        "min_length",
                                                        "n_ctx",
                                                        "no_repeat_ngram_size",
                                                        "num_beam_groups",
                                                        "num_beams",
                                                        "num_return_sequences",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "output_past",
                                                        "output_scores",
                                                        "pad_token_id",
                                                        "prefix",
                                                        "problem_type",
                                                        "remove_invalid_values",
                                                        "repetition_penalty",
                                                        "resid_pdrop",
                                                        "return_dict",
                                                        "return_dict_in_generate",
                                                        "sep_token_id",
                                                        "summary_activation",
                                                        "summary_first_dropout",
                                                        "summary_proj_to_labels",
                                                        "summary_type",
                                                        "summary_use_proj",
                                                        "suppress_tokens",
                                                        "task_specific_params",
                                                        "temperature",
                                                        "tf_legacy_loss",
                                                        "tokenizer_class",
                                                        "top_k",
                                                        "top_p",
                                                        "torch_dtype",
                                                        "torchscript",
                                                        "transformers_version",
                                                        "typical_p",
                                                        "use_bfloat16",
                                                        "use_cache"};

// Reads fields by name and remembers which were read, so that the rest can be judged.
class Fields {
 public:
  Fields(const Json& json, std::string_view source) : json_(json), source_(source) {
    if (!json.is_object()) Fail("{}: expected a JSON object", source);
  }

  const Json* Find(std::string_view name) {
    seen_.insert(std::string(name));
    const auto it = json_.find(name);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }

  std::int64_t Extent(std::string_view name, std::int64_t limit,
                      std::optional<std::int64_t> fallback) {
    const Json* value = Find(name);
    if (value == nullptr) {
      if (fallback) return *fallback;
      Fail("{}: '{}' is missing", source_, name);
    }
    if (!value->is_number_integer() || value->get<double>() < 1 ||
        value->get<double>() > static_cast<double>(limit)) {
      Fail("{}: '{}' is {}, expected a whole number from 1 to {}", source_, name, value->dump(),
           limit);
    }
    return value->get<std::int64_t>();
  }

  bool Flag(std::string_view name, bool fallback) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    if (!value->is_boolean())
      Fail("{}: '{}' is {}, expected true or false", source_, name, value->dump());
    return value->get<bool>();
  }

  float Number(std::string_view name, float fallback) {
    const Json* value = Find(name);
    if (value == nullptr) return fallback;
    if (!value->is_number() || !std::isfinite(value->get<float>())) {
      Fail("{}: '{}' is {}, expected a number", source_, name, value->dump());
    }
    return value->get<float>();
  }

  // Refuses a flag that asks for something we do not do.
  void MustBeFalse(std::string_view name, std::string_view why) {
    if (Flag(name, false)) Fail("{}: '{}' is true, but {}", source_, name, why);
  }

  void RefuseUnknown() const {
    for (const auto& [name, value] : json_.items()) {
      if (!seen_.contains(name) && !kHarmless.contains(name)) {
        Fail("{}: unknown field '{}'; remove it if it does not change the model", source_, name);
      }
    }
  }

 private:
  const Json& json_;
  std::string_view source_;
  std::unordered_set<std::string> seen_;
};

void ReadAttentionKind(Fields& fields, std::string_view source, ModelConfig* config) {
  // The field of the published sparse checkpoints: gates at bias 0.
  if (fields.Flag("use_sparse_attn", false)) config->attention = AttentionKind::kGated;
  const Json* ours = fields.Find("clearhead");
  if (ours == nullptr) return;
  const std::string inner_source = fmt::format("{}, \"clearhead\"", source);
  Fields own(*ours, inner_source);
  const Json* kind = own.Find("attention");
  if (kind != nullptr) {
    if (*kind == "gated") {
      config->attention = AttentionKind::kGated;
    } else if (*kind == "softmax") {
      config->attention = AttentionKind::kSoftmax;
    } else {
      Fail("{}: 'attention' is {}, expected \"softmax\" or \"gated\"", inner_source, kind->dump());
    }
  }
  config->gate_bias = own.Number("gate_bias", 0.0f);
  own.RefuseUnknown();
}

}  // namespace

float ModelConfig::AttentionScale(std::int64_t layer) const {
  double scale = 1.0;
  if (scale_attention) scale /= std::sqrt(static_cast<double>(head_size()));
  if (scale_by_inverse_layer) scale /= static_cast<double>(layer + 1);
  return static_cast<float>(scale);
}

std::int64_t ModelConfig::ParameterCount() const {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : ParameterTable(*this)) count += spec.shape.size();
  return count;
}

ModelConfig ParseConfig(const Json& json, std::string_view source) {
  Fields fields(json, source);
  ModelConfig config;

  const Json* type = fields.Find("model_type");
  if (type != nullptr && *type != "gpt2") {
    Fail("{}: 'model_type' is {}, expected \"gpt2\"; only GPT-2-family models are supported",
         source, type->dump());
  }
  config.layers = fields.Extent("n_layer", 4096, std::nullopt);
  config.heads = fields.Extent("n_head", 4096, std::nullopt);
  config.width = fields.Extent("n_embd", 1 << 18, std::nullopt);
  config.vocabulary = fields.Extent("vocab_size", 1 << 24, std::nullopt);
  config.positions = fields.Extent("n_positions", 1 << 24, std::nullopt);
  config.inner = fields.Extent("n_inner", 1 << 20, 4 * config.width);
  if (config.width % config.heads != 0) {
    Fail("{}: n_embd {} is not a multiple of n_head {}", source, config.width, config.heads);
  }
  config.layer_norm_epsilon = fields.Number("layer_norm_epsilon", 1e-5f);
  if (!(config.layer_norm_epsilon > 0.0f))
    Fail("{}: 'layer_norm_epsilon' must be positive", source);

  if (const Json* name = fields.Find("activation_function"); name != nullptr) {
    const auto activation =
        name->is_string() ? ParseActivation(name->get<std::string>()) : std::optional<Activation>();
    if (!activation) {
      Fail("{}: 'activation_function' is {}, expected gelu_new, gelu, relu, silu or tanh", source,
           name->dump());
    }
    config.activation = *activation;
  }
  config.scale_attention = fields.Flag("scale_attn_weights", true);
  config.scale_by_inverse_layer = fields.Flag("scale_attn_by_inverse_layer_idx", false);
  config.tied = fields.Flag("tie_word_embeddings", true);
  fields.Flag("reorder_and_upcast_attn", false);  // same mathematics, another order of rounding
  fields.MustBeFalse("add_cross_attention", "cross-attention is not supported");
  fields.MustBeFalse("is_encoder_decoder", "encoder-decoder models are not supported");
  if (const Json* eos = fields.Find("eos_token_id"); eos != nullptr) {
    if (!eos->is_number_integer() || eos->get<double>() < 0 || eos->get<double>() > (1 << 24)) {
      Fail("{}: 'eos_token_id' is {}, expected a token id", source, eos->dump());
    }
    config.end_of_text = eos->get<std::int32_t>();
  }
  ReadAttentionKind(fields, source, &config);
  fields.RefuseUnknown();
  return config;
}

ModelConfig ReadConfig(const std::filesystem::path& model_directory) {
  const std::filesystem::path path = model_directory / "config.json";
  return ParseConfig(ReadJsonFile(path, /*max_bytes=*/1 << 20), path.string());
}

Json ToJson(const ModelConfig& config, std::string_view dtype) {
  Json json = {
      {"architectures", {"GPT2LMHeadModel"}},
      {"model_type", "gpt2"},
      {"n_layer", config.layers},
      {"n_head", config.heads},
      {"n_embd", config.width},
      {"n_inner", config.inner},
      {"n_positions", config.positions},
      {"vocab_size", config.vocabulary},
      {"activation_function", ToText(config.activation)},
      // The shortest decimal of the float, so that 1e-05 stays 1e-05.
      {"layer_norm_epsilon", std::stod(fmt::format("{}", config.layer_norm_epsilon))},
      {"scale_attn_weights", config.scale_attention},
      {"scale_attn_by_inverse_layer_idx", config.scale_by_inverse_layer},
      {"tie_word_embeddings", config.tied},
      {"attn_pdrop", 0.0},
      {"embd_pdrop", 0.0},
      {"resid_pdrop", 0.0},
      {"dtype", dtype},
  };
  if (config.end_of_text) {
    json["bos_token_id"] = *config.end_of_text;
    json["eos_token_id"] = *config.end_of_text;
  } else {  // Hugging Face would fill in GPT-2's 50256
    json["bos_token_id"] = nullptr;
    json["eos_token_id"] = nullptr;
  }
  if (config.attention == AttentionKind::kGated) {
    json["clearhead"] = {{"attention", "gated"},
                         {"gate_bias", std::stod(fmt::format("{}", config.gate_bias))}};
  }
  return json;
}

}  // namespace clearhead
