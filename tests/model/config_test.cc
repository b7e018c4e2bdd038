// SPDX-License-Identifier: MIT
// config.json: what is read, what is refused.
#include "model/config.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "model/model_testing.h"
#include "model/parameters.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

Json Small() {
  return {{"n_layer", 3}, {"n_head", 2}, {"n_embd", 10}, {"vocab_size", 31}, {"n_positions", 16}};
}

Json With(const std::string& name, const Json& value) {
  Json json = Small();
  json[name] = value;
  return json;
}

TEST(Config, DefaultsAreThoseOfHuggingFace) {
  const ModelConfig config = ParseConfig(Small(), "x");
  EXPECT_EQ(config.layers, 3);
  EXPECT_EQ(config.heads, 2);
  EXPECT_EQ(config.width, 10);
  EXPECT_EQ(config.vocabulary, 31);
  EXPECT_EQ(config.positions, 16);
  EXPECT_EQ(config.inner, 40);
  EXPECT_EQ(config.head_size(), 5);
  EXPECT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_EQ(config.activation, Activation::kGeluNew);
  EXPECT_TRUE(config.scale_attention);
  EXPECT_FALSE(config.scale_by_inverse_layer);
  EXPECT_TRUE(config.tied);
  EXPECT_TRUE(config.end_of_text.empty());
  EXPECT_EQ(config.attention, AttentionKind::kSoftmax);
  // A null is as good as nothing.
  EXPECT_EQ(ParseConfig(With("n_inner", nullptr), "x").inner, 40);
  EXPECT_TRUE(ParseConfig(With("eos_token_id", nullptr), "x").end_of_text.empty());
}

TEST(Config, FieldsAreRead) {
  EXPECT_EQ(ParseConfig(With("n_inner", 7), "x").inner, 7);
  EXPECT_EQ(ParseConfig(With("layer_norm_epsilon", 1e-6), "x").norm_epsilon, 1e-6f);
  EXPECT_EQ(ParseConfig(With("activation_function", "relu"), "x").activation, Activation::kRelu);
  EXPECT_EQ(ParseConfig(With("eos_token_id", 0), "x").end_of_text, std::vector<std::int32_t>{0});
  EXPECT_FALSE(ParseConfig(With("tie_word_embeddings", false), "x").tied);
  EXPECT_EQ(ParseConfig(With("use_sparse_attn", true), "x").attention, AttentionKind::kGated);
  const ModelConfig gated =
      ParseConfig(With("clearhead", {{"attention", "gated"}, {"gate_bias", -2.5}}), "x");
  EXPECT_EQ(gated.attention, AttentionKind::kGated);
  EXPECT_EQ(gated.gate_bias, -2.5f);
  // Ours has the last word.
  Json both = With("use_sparse_attn", true);
  both["clearhead"] = {{"attention", "softmax"}};
  EXPECT_EQ(ParseConfig(both, "x").attention, AttentionKind::kSoftmax);
  // Names that change nothing are let through.
  EXPECT_EQ(ParseConfig(With("summary_type", "cls_index"), "x").layers, 3);
}

TEST(Config, ScalesAndCounts) {
  ModelConfig config = ParseConfig(Small(), "x");
  EXPECT_FLOAT_EQ(config.AttentionScale(2), 1.0f / std::sqrt(5.0f));
  config.scale_by_inverse_layer = true;
  EXPECT_FLOAT_EQ(config.AttentionScale(2), 1.0f / std::sqrt(5.0f) / 3.0f);
  config.scale_attention = false;
  EXPECT_FLOAT_EQ(config.AttentionScale(0), 1.0f);
  const std::int64_t block =
      4 * 10 + (10 * 30 + 30) + (10 * 10 + 10) + (10 * 40 + 40) + (40 * 10 + 10);
  EXPECT_EQ(config.ParameterCount(), 31 * 10 + 16 * 10 + 3 * block + 2 * 10);
  config.tied = false;
  EXPECT_EQ(config.ParameterCount(), 2 * 31 * 10 + 16 * 10 + 3 * block + 2 * 10);
  // GPT-2 itself.
  const ModelConfig gpt2 = ParseConfig({{"n_layer", 12},
                                        {"n_head", 12},
                                        {"n_embd", 768},
                                        {"vocab_size", 50257},
                                        {"n_positions", 1024}},
                                       "x");
  EXPECT_EQ(gpt2.ParameterCount(), 124439808);
}

TEST(Config, RefusesByName) {
  struct Case {
    Json json;
    std::string part;
  };
  std::vector<Case> cases = {
      {Json::array(), "expected a JSON object"},
      {nullptr, "expected a JSON object"},
      {With("model_type", "bert"), "'model_type' is \"bert\", expected one of \"gpt2\""},
      {With("model_type", 7), "'model_type' is 7"},
      {With("n_head", 3), "n_embd 10 is not a multiple of n_head 3"},
      {With("layer_norm_epsilon", 0), "'layer_norm_epsilon'"},
      {With("layer_norm_epsilon", -1e-5), "'layer_norm_epsilon'"},
      {With("layer_norm_epsilon", 1e300), "'layer_norm_epsilon'"},
      {With("layer_norm_epsilon", "1e-5"), "'layer_norm_epsilon'"},
      {With("activation_function", "swiglu"), "'activation_function' is \"swiglu\""},
      {With("activation_function", 1), "'activation_function'"},
      {With("scale_attn_weights", 1), "'scale_attn_weights' is 1, expected true or false"},
      {With("scale_attn_by_inverse_layer_idx", "no"), "'scale_attn_by_inverse_layer_idx'"},
      {With("tie_word_embeddings", 0), "'tie_word_embeddings'"},
      {With("add_cross_attention", true), "'add_cross_attention'"},
      {With("is_encoder_decoder", true), "'is_encoder_decoder'"},
      {With("eos_token_id", -1), "'eos_token_id' is -1"},
      {With("eos_token_id", 1.5), "'eos_token_id' is 1.5"},
      {With("eos_token_id", std::uint64_t{1} << 63), "'eos_token_id'"},
      {With("use_sparse_attn", "yes"), "'use_sparse_attn'"},
      {With("clearhead", 1), "expected a JSON object"},
      {With("clearhead", {{"attention", "dense"}}), "'attention' is \"dense\""},
      {With("clearhead", {{"gate_bias", "big"}}), "'gate_bias' is \"big\""},
      {With("clearhead", {{"gates", 1}}), "unknown field 'gates'"},
      {With("rope_theta", 10000), "unknown field 'rope_theta'"},
      {With("n_Layer", 3), "unknown field 'n_Layer'"},
  };
  for (const char* name : {"n_layer", "n_head", "n_embd", "vocab_size", "n_positions"}) {
    Json missing = Small();
    missing.erase(name);
    cases.push_back({missing, fmt::format("'{}' is missing", name)});
    cases.push_back({With(name, nullptr), fmt::format("'{}' is missing", name)});
    for (const Json& wrong : {Json(0), Json(-1), Json(1.5), Json("3"), Json(true), Json(1ll << 40),
                              Json(~std::uint64_t{0}), Json::array({3})}) {
      cases.push_back({With(name, wrong), fmt::format("'{}' is {}", name, wrong.dump())});
    }
  }
  for (const Case& c : cases) {
    const std::string message = ErrorOf([&] { ParseConfig(c.json, "the/config.json"); });
    EXPECT_TRUE(message.starts_with("the/config.json")) << c.json << ": " << message;
    EXPECT_NE(message.find(c.part), std::string::npos)
        << "'" << message << "' lacks '" << c.part << "'";
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(Config, RefusesHugeAndBrokenFiles) {
  const TemporaryFolder folder;
  const auto refusal = [&] { return ErrorOf([&] { ReadConfig(folder.path()); }); };
  EXPECT_NE(refusal().find("config.json"), std::string::npos);
  WriteFile(folder / "config.json", "{\"n_layer\": 3,");
  EXPECT_NE(refusal().find("config.json: not valid JSON at line 1"), std::string::npos)
      << refusal();
  WriteFile(folder / "config.json", "{\"n_layer\": 3, \"n_layer\": 4}");
  EXPECT_NE(refusal().find("'n_layer' appears twice"), std::string::npos) << refusal();
  WriteFile(folder / "config.json", std::string((1 << 20) + 1, ' '));
  EXPECT_NE(refusal().find("config.json"), std::string::npos) << refusal();
}

TEST(Config, WhatIsWrittenIsReadBack) {
  ModelConfig config = GatedConfig(0.1f);
  config.activation = Activation::kTanh;
  config.end_of_text = {7, 9};
  config.begin_of_text = 3;
  for (const float epsilon : {1e-5f, 1e-12f, 0.1f, 3.4e38f, 1.1754944e-38f}) {
    config.norm_epsilon = epsilon;
    const ModelConfig back = ParseConfig(ParseJson(ToText(ToJson(config, "float32")), "x"), "x");
    EXPECT_EQ(back.norm_epsilon, epsilon);
    EXPECT_EQ(back.gate_bias, 0.1f);
    EXPECT_EQ(ToJson(back, "x"), ToJson(config, "x"));
  }
}

}  // namespace
}  // namespace clearhead
