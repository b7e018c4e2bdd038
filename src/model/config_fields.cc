// SPDX-License-Identifier: MIT
#include "model/config_fields.h"

#include <cmath>

#include "core/error.h"

namespace clearhead {
namespace {

// Fields of config.json that change no number of an evaluation without dropout: provenance,
// training settings, generation defaults, heads of other tasks.
const std::unordered_set<std::string_view> kHarmless = {"_attn_implementation_autoset",
                                                        "_diffusers_version",
                                                        "_name_or_path",
                                                        "_num_labels",
                                                        "architectures",
                                                        "attention_dropout",
                                                        "attn_pdrop",
                                                        "auto_map",
                                                        "bad_words_ids",
                                                        "begin_suppress_tokens",
                                                        "bos_token_id",
                                                        "cache_implementation",
                                                        "chunk_size_feed_forward",
                                                        "cross_attention_hidden_size",
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
                                                        "max_window_layers",
                                                        "min_length",
                                                        "mlp_dropout",
                                                        "model_max_length",
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
                                                        "pretraining_tp",
                                                        "problem_type",
                                                        "pruned_heads",
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
                                                        "tie_encoder_decoder",
                                                        "tokenizer_class",
                                                        "top_k",
                                                        "top_p",
                                                        "torch_dtype",
                                                        "torchscript",
                                                        "transformers_version",
                                                        "typical_p",
                                                        "unsloth_version",
                                                        "use_bfloat16",
                                                        "use_cache"};

}  // namespace

ConfigFields::ConfigFields(const Json& json, std::string source)
    : json_(json), source_(std::move(source)) {
  if (!json.is_object()) Fail("{}: expected a JSON object", source_);
}

const Json* ConfigFields::Find(std::string_view name) {
  seen_.insert(std::string(name));
  const auto it = json_.find(name);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

std::int64_t ConfigFields::Extent(std::string_view name, std::int64_t limit,
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

bool ConfigFields::Flag(std::string_view name, bool fallback) {
  const Json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    Fail("{}: '{}' is {}, expected true or false", source_, name, value->dump());
  }
  return value->get<bool>();
}

double ConfigFields::Number(std::string_view name, double fallback) {
  const Json* value = Find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<float>())) {
    Fail("{}: '{}' is {}, expected a number", source_, name, value->dump());
  }
  return value->get<double>();
}

float ConfigFields::PositiveFloat(std::string_view name, float fallback) {
  const auto value = static_cast<float>(Number(name, fallback));
  if (!(value > 0.0f)) Fail("{}: '{}' must be positive", source_, name);
  return value;
}

void ConfigFields::MustBeFalse(std::string_view name, std::string_view why) {
  if (Flag(name, false)) Fail("{}: '{}' is true, but {}", source_, name, why);
}

void ConfigFields::MustBeAbsent(std::string_view name, std::string_view why) {
  if (const Json* value = Find(name); value != nullptr) {
    Fail("{}: '{}' is {}, but {}", source_, name, value->dump(), why);
  }
}

void ConfigFields::RefuseUnknown() const {
  for (const auto& [name, value] : json_.items()) {
    if (!seen_.contains(name) && !kHarmless.contains(name)) {
      Fail("{}: unknown field '{}'; remove it if it does not change the model", source_, name);
    }
  }
}

}  // namespace clearhead
