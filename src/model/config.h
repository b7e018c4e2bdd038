// SPDX-License-Identifier: MIT
// The configuration of a model: what Hugging Face's config.json says that changes a number, in one
// vocabulary for every family.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "kernels/activation.h"
#include "kernels/norm.h"

namespace clearhead {

struct Family;

enum class AttentionKind {
  kSoftmax,  // the family's own
  kGated,    // softmax weights times a gate that is open where score + gate_bias > 0
};

enum class PositionKind { kLearned, kRotary };
enum class MlpKind {
  kPlain,  // W_out f(W_in x)
  kGated,  // W_out (f(W_gate x) * W_in x)
};
enum class NormPlace {
  kBefore,  // x + f(norm(x))
  kAfter,   // x + norm(f(x))
};
enum class QueryKeyNorm {
  kNone,
  kHead,   // over the vector of each head
  kWhole,  // over all heads' vectors together
};

// How fast each pair of a head's values turns with the position (kernels/rotary.h).
struct Rotary {
  enum class Scaling { kNone, kLinear, kByWavelength };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // kByWavelength
  std::int64_t original_positions = 0;                             // kByWavelength
  bool operator==(const Rotary&) const = default;
};

struct ModelConfig {
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;  // possibly padded beyond the tokenizer's
  std::int64_t positions = 0;   // the longest context
  std::int64_t inner = 0;       // of the MLP
  float norm_epsilon = 1e-5f;
  Activation activation = Activation::kGeluNew;
  bool scale_attention = true;                 // scores divided by sqrt(head size)
  bool scale_by_inverse_layer = false;         // and by layer + 1
  bool tied = true;                            // the output matrix is the token embedding
  std::vector<std::int32_t> end_of_text = {};  // ids that end a text
  std::optional<std::int32_t> begin_of_text = {};
  AttentionKind attention = AttentionKind::kSoftmax;
  float gate_bias = 0.0f;
  bool gate_bias_by_head = false;  // and a tensor of each block holds what is added to it by head

  // What differs between families; the defaults are those of the first one.
  const Family* family = nullptr;  // null: the first of Families()
  std::int64_t key_value_heads =
      0;  // heads / key_value_heads heads share keys and values; 0: none do
  std::int64_t given_head_size = 0;  // 0: width / heads
  NormKind norm = NormKind::kLayer;
  NormPlace norm_place = NormPlace::kBefore;
  bool norm_has_weight = true, norm_has_bias = true;
  QueryKeyNorm query_key_norm = QueryKeyNorm::kNone;
  std::optional<float> clip_qkv = {};  // queries, keys and values are clamped to +-clip_qkv
  PositionKind position = PositionKind::kLearned;
  Rotary rotary = {};
  MlpKind mlp = MlpKind::kPlain;
  bool qkv_bias = true, projection_bias = true, mlp_bias = true;

  std::int64_t head_size() const { return given_head_size > 0 ? given_head_size : width / heads; }
  std::int64_t kv_heads() const { return key_value_heads > 0 ? key_value_heads : heads; }
  std::int64_t heads_width() const { return heads * head_size(); }    // of all heads' outputs
  std::int64_t kv_width() const { return kv_heads() * head_size(); }  // of all keys, or values
  std::int64_t qkv_width() const { return heads_width() + 2 * kv_width(); }
  // Whether queries and keys are changed between projection and rotation.
  bool changes_projections() const {
    return query_key_norm != QueryKeyNorm::kNone || clip_qkv.has_value();
  }
  float AttentionScale(std::int64_t layer) const;
  std::vector<double> RotaryFrequencies() const;  // [head_size / 2]; empty without rotary positions
  std::int64_t ParameterCount() const;
};

// Reads config.json. Missing required fields, impossible values and unknown fields are refused by
// name; `source` names the file in messages.
ModelConfig ParseConfig(const Json& json, std::string_view source);
ModelConfig ReadConfig(const std::filesystem::path& model_directory);

// A config.json that Hugging Face loads as the family's language model.
Json ToJson(const ModelConfig& config, std::string_view dtype);

}  // namespace clearhead
