// SPDX-License-Identifier: MIT
// tokenizer.json of byte-level vocabularies as it comes, good and hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/pretokenize.h"
#include "text/refusal.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;

Json GoodTokenizerJson() {
  Json vocab = Json::object();
  const std::vector<std::string> tokens = ByteTokens({"ab", "abc", "<|endoftext|>"});
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[BytesToSymbols(tokens[id])] = id;
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"added_tokens",
       {{{"id", 258}, {"content", "<|endoftext|>"}, {"lstrip", false}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", {{"type", "ByteLevel"}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", ""},
        {"continuing_subword_prefix", ""},
        {"byte_fallback", false},
        {"vocab", vocab},
        {"merges", {"a b", "ab c"}}}}};
}

std::string RefusedJson(const Json& json) {
  return Refusal([&] { Tokenizer::FromTokenizerJson(ToText(json)); });
}

TEST(TokenizerJson, ReadsTokenizerJsonInBothForms) {
  Json json = GoodTokenizerJson();
  const Tokenizer strings = Tokenizer::FromTokenizerJson(ToText(json));
  json["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"ab", "c"})});
  const Tokenizer pairs = Tokenizer::FromTokenizerJson(ToText(json));
  json["model"].erase("type");
  const Tokenizer old = Tokenizer::FromTokenizerJson(ToText(json));
  for (const Tokenizer& tokenizer : {strings, pairs, old}) {
    EXPECT_EQ(tokenizer.Encode("abcab<|endoftext|>"), (Ids{257, 256, 258}));
    EXPECT_EQ(tokenizer.end_of_text(), 258);
    EXPECT_EQ(tokenizer.vocabulary_size(), 259);
  }
}

Json Refusing(const char* pointer, const Json& value) {
  Json json = GoodTokenizerJson();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

std::string RefusedWith(const char* pointer, const Json& value) {
  return RefusedJson(Refusing(pointer, value));
}

TEST(TokenizerJson, RefusesByNameWhatNoFamilyHas) {
  using ::testing::HasSubstr;
  EXPECT_EQ(RefusedJson(GoodTokenizerJson()), "accepted");
  EXPECT_EQ(RefusedWith("/normalizer", {{"type", "NFKC"}}),
            "tokenizer.json: the normalizer is \"NFKC\"; supported are none, NFC, and Prepend "
            "\"\u2581\" with Replace \" \" by \"\u2581\"");
  EXPECT_THAT(RefusedWith("/normalizer", 3), HasSubstr("the normalizer is 3"));
  EXPECT_THAT(RefusedWith("/normalizer", {{"type", "Sequence"}}), HasSubstr("'normalizers'"));
  EXPECT_THAT(RefusedWith("/normalizer", {{"type", "Prepend"}, {"prepend", "\u2581"}}),
              HasSubstr("Prepend without Replace"));
  EXPECT_THAT(RefusedWith("/normalizer", {{"type", "Prepend"}, {"prepend", "_"}}),
              HasSubstr("the normalizer is \"Prepend\""));
  EXPECT_EQ(
      RefusedWith("/pre_tokenizer", {{"type", "Whitespace"}}),
      "tokenizer.json: the pre_tokenizer is \"Whitespace\"; supported are ByteLevel, Split with "
      "ByteLevel, Metaspace, and none after a Replace normalizer");
  EXPECT_THAT(RefusedWith("/pre_tokenizer", nullptr), HasSubstr("the pre_tokenizer is null"));
  EXPECT_THAT(RefusedWith("/pre_tokenizer", "ByteLevel"), HasSubstr("the pre_tokenizer is"));
  EXPECT_THAT(RefusedWith("/pre_tokenizer/add_prefix_space", true),
              HasSubstr("add_prefix_space = true"));
  EXPECT_THAT(RefusedWith("/pre_tokenizer/use_regex", false), HasSubstr("use_regex = false"));
  EXPECT_THAT(RefusedWith("/decoder/type", "WordPiece"), HasSubstr("the decoder is \"WordPiece\""));
  EXPECT_EQ(RefusedWith("/model/type", "Unigram"),
            "tokenizer.json: the model is \"Unigram\"; supported are BPE");
  EXPECT_THAT(RefusedWith("/model", nullptr), HasSubstr("there is no model"));
  EXPECT_THAT(RefusedWith("/model/dropout", 0.1), HasSubstr("dropout = 0.1"));
  EXPECT_EQ(RefusedWith("/model/dropout", 0), "accepted");
  EXPECT_THAT(RefusedWith("/model/continuing_subword_prefix", "##"),
              HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(RefusedWith("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(RefusedWith("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(RefusedWith("/model/ignore_merges", "yes"), HasSubstr("ignore_merges"));
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    EXPECT_THAT(RefusedWith((std::string("/added_tokens/0/") + key).c_str(), true),
                HasSubstr(std::string(key) + " = true"));
  }
  EXPECT_EQ(RefusedWith("/post_processor", {{"type", "BertProcessing"}}),
            "tokenizer.json: the post_processor is \"BertProcessing\"; supported are ByteLevel and "
            "TemplateProcessing");
}

Json SplitBy(std::string_view pattern, const char* behavior = "Isolated", bool invert = false) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", behavior},
             {"invert", invert}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
}

TEST(TokenizerJson, KnowsThePatternsOfItsFamilies) {
  using ::testing::HasSubstr;
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    for (const Json& split :
         {SplitBy(WrittenPattern(rule)), SplitBy(WrittenPattern(rule), "Removed", true)}) {
      const Json json = Refusing("/pre_tokenizer", split);
      EXPECT_EQ(Tokenizer::FromTokenizerJson(ToText(json)).vocabulary().rules.words, rule);
    }
  }
  EXPECT_EQ(RefusedWith("/pre_tokenizer", SplitBy("\\w+")),
            "tokenizer.json: the pre_tokenizer splits by {\"Regex\":\"\\\\w+\"}; supported are the "
            "patterns of GPT-2, Llama 3 and Qwen2");
  EXPECT_THAT(RefusedWith("/pre_tokenizer", SplitBy(WrittenPattern(WordRule::kQwen2), "Removed")),
              HasSubstr("behavior = \"Removed\""));
  Json twice = SplitBy(WrittenPattern(WordRule::kQwen2));
  twice["pretokenizers"][1]["use_regex"] = true;
  EXPECT_THAT(RefusedWith("/pre_tokenizer", twice), HasSubstr("use_regex = true"));
  twice["pretokenizers"][1].erase("use_regex");
  EXPECT_THAT(RefusedWith("/pre_tokenizer", twice), HasSubstr("splits again"));
  twice["pretokenizers"].erase(1);
  EXPECT_THAT(RefusedWith("/pre_tokenizer", twice), HasSubstr("supported are ByteLevel"));
  EXPECT_THAT(RefusedWith("/pre_tokenizer", {{"type", "Sequence"}}), HasSubstr("'pretokenizers'"));
}

TEST(TokenizerJson, PostProcessorSaysWhatComesFirst) {
  using ::testing::HasSubstr;
  const Json first = {{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}};
  const Json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto processor = [&](const Json& single, const Json& ids) -> Json {
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"special_tokens", {{"<|endoftext|>", {{"ids", ids}}}}}};
  };
  const auto begin = [&](const Json& single) {
    const Json json = Refusing("/post_processor", processor(single, {258}));
    return Tokenizer::FromTokenizerJson(ToText(json)).begin_of_text();
  };
  EXPECT_EQ(begin({first, text}), 258);
  EXPECT_EQ(begin(Json::array({text})), std::nullopt);
  EXPECT_EQ(begin({text, first}), std::nullopt);
  EXPECT_THAT(RefusedWith("/post_processor", processor({first, first, text}, {258})),
              HasSubstr("puts 2 tokens before the text"));
  EXPECT_THAT(RefusedWith("/post_processor", processor(Json::array({first}), {258})),
              HasSubstr("does not say where the text goes"));
  EXPECT_THAT(RefusedWith("/post_processor", processor("x", {258})), HasSubstr("has no 'single'"));
  for (const Json& ids : std::vector<Json>{nullptr, Json::array(), {1, 2}, {259}, {-1}, {"x"}}) {
    EXPECT_THAT(RefusedWith("/post_processor", processor({first, text}, ids)),
                HasSubstr("has no single id in 0..258"));
  }
}

// Tokens that are not normalised are found first; the others in the text as the normaliser left it.
TEST(TokenizerJson, NormalisedTokensAreFoundInNormalisedText) {
  Json json = GoodTokenizerJson();
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].push_back(
      {{"id", 259}, {"content", "e\u0301"}, {"special", false}, {"normalized", true}});
  json["added_tokens"].push_back(
      {{"id", 260}, {"content", "o\u0301"}, {"special", false}, {"normalized", false}});
  json["added_tokens"].push_back(
      {{"id", 261}, {"content", "x y"}, {"special", true}, {"normalized", true}});
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(ToText(json));
  EXPECT_EQ(tokenizer.Encode("ab\u00E9e\u0301"), (Ids{256, 259, 259}));
  EXPECT_EQ(tokenizer.Encode("abo\u0301"), (Ids{256, 260}));
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode("\u00F3")), "\u00F3");
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode("u\u0308")), "\u00FC");
  EXPECT_EQ(tokenizer.Encode("x y"), Ids{261});
  EXPECT_EQ(tokenizer.Encode("x y", SpecialTokens::kAsText).size(), 3u);
  EXPECT_FALSE(tokenizer.MayCut("ax y", 2)) << "a token may lie across";
  json["added_tokens"].erase(3);
  EXPECT_TRUE(Tokenizer::FromTokenizerJson(ToText(json)).MayCut("ax y", 2));
}

TEST(TokenizerJson, RefusesBrokenFiles) {
  const auto refused = RefusedWith;
  using ::testing::HasSubstr;
  EXPECT_THAT(refused("/added_tokens", 3), HasSubstr("added_tokens is not a list"));
  EXPECT_THAT(refused("/added_tokens/0", 3), HasSubstr("has no content"));
  EXPECT_THAT(refused("/added_tokens/0/content", ""), HasSubstr("has no content"));
  EXPECT_THAT(refused("/added_tokens/0/id", 5), HasSubstr("vocabulary says id 258"));
  EXPECT_THAT(refused("/added_tokens/0/id", -1), HasSubstr("vocabulary says id 258"));
  EXPECT_THAT(refused("/added_tokens/1", {{"id", 258}, {"content", "<x>"}}),
              HasSubstr("id 258 belongs to two tokens"));
  EXPECT_THAT(refused("/added_tokens/1", {{"id", 260}, {"content", "<x>"}}),
              HasSubstr("outside 0..259"));
  EXPECT_THAT(refused("/added_tokens/1", {{"content", "<x>"}}), HasSubstr("outside 0..259"));
  EXPECT_THAT(refused("/added_tokens/1", {{"id", 258}, {"content", "<|endoftext|>"}}),
              HasSubstr("appears twice"));
  EXPECT_THAT(refused("/model/vocab", Json::array()), HasSubstr("model.vocab is not an object"));
  EXPECT_THAT(refused("/model/vocab/ab", "x"), HasSubstr("token \"ab\" has an id outside"));
  EXPECT_THAT(refused("/model/merges", nullptr), HasSubstr("model.merges is not a list"));
  for (const Json& merge : std::vector<Json>{"ab", "a b c", 3, Json::array({"a"}),
                                             Json::array({"a", 1}), Json::object()}) {
    EXPECT_THAT(refused("/model/merges/1", merge), HasSubstr("merge 1: expected two tokens"));
  }
  EXPECT_THAT(refused("/model/merges/1", Json::array({"", "a"})),
              HasSubstr("not in the vocabulary"));
  EXPECT_THAT(refused("/model/merges/1", "b a"), HasSubstr("merge 1: \"ba\" is not in"));
  EXPECT_THAT(refused("/model/merges/1", "a b"), HasSubstr("appears twice"));
  EXPECT_EQ(RefusedJson(Json::array()), "tokenizer.json: expected a JSON object");
  const auto refused_text = [](std::string_view text) {
    return Refusal([&] { Tokenizer::FromTokenizerJson(text); });
  };
  EXPECT_EQ(refused_text("{\n\n?"), "tokenizer.json: not valid JSON at line 3");
  EXPECT_EQ(refused_text("{\"a\": 1, \"a\": 2}"),
            "tokenizer.json: the key \"a\" appears twice in one object");
  EXPECT_THAT(refused_text(std::string(100000, '[')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(refused_text("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace clearhead
