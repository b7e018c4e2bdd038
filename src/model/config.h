// SPDX-License-Identifier: MIT
// The configuration of a GPT-2-family model: what Hugging Face's config.json says that changes a
// number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "core/json.h"
#include "kernels/activation.h"

namespace clearhead {

enum class AttentionKind {
  kSoftmax,  // GPT-2's own
  kGated,    // softmax weights times a gate that is open where score + gate_bias > 0
};

struct ModelConfig {
  std::int64_t layers = 0;      // n_layer
  std::int64_t heads = 0;       // n_head
  std::int64_t width = 0;       // n_embd
  std::int64_t vocabulary = 0;  // vocab_size, possibly padded beyond the tokenizer's
  std::int64_t positions = 0;   // n_positions: the longest context
  std::int64_t inner = 0;       // n_inner, 4 * width where the file says null
  float layer_norm_epsilon = 1e-5f;
  Activation activation = Activation::kGeluNew;
  bool scale_attention = true;              // scale_attn_weights: scores divided by sqrt(head size)
  bool scale_by_inverse_layer = false;      // scale_attn_by_inverse_layer_idx: and by layer + 1
  bool tied = true;                         // tie_word_embeddings: the output matrix is wte
  std::optional<std::int32_t> end_of_text;  // eos_token_id
  AttentionKind attention = AttentionKind::kSoftmax;
  float gate_bias = 0.0f;

  std::int64_t head_size() const { return width / heads; }
  float AttentionScale(std::int64_t layer) const;
  std::int64_t ParameterCount() const;
};

// Reads the fields above. Missing required ones, impossible values and unknown fields are refused
// by name; `source` names the file in messages.
ModelConfig ParseConfig(const Json& json, std::string_view source);
ModelConfig ReadConfig(const std::filesystem::path& model_directory);

// A config.json that Hugging Face loads as GPT2LMHeadModel.
Json ToJson(const ModelConfig& config, std::string_view dtype);

}  // namespace clearhead
