// SPDX-License-Identifier: MIT
// Files as they come, good and hostile.
#include "text/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;

std::string Refusal(const std::function<void()>& load) {
  try {
    load();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string RefusedVocab(std::string_view vocab) {
  return Refusal([&] { Tokenizer::FromVocabularyAndMerges(vocab, ""); });
}

std::string RefusedMerges(std::string_view merges) {
  const std::string vocab = VocabJson(ByteTokens({"ab", "Ġx"}));
  return Refusal([&] { Tokenizer::FromVocabularyAndMerges(vocab, merges); });
}

// The vocabulary with one of its texts replaced by another.
std::string Edited(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TokenizerFiles, RefusesBrokenVocabularies) {
  const std::string good = VocabJson(ByteTokens({"ab"}));
  EXPECT_EQ(RefusedVocab(good), "accepted");
  EXPECT_EQ(RefusedVocab(""), "vocab.json: not valid JSON at line 1");
  EXPECT_EQ(RefusedVocab("{\n\"a\": 0,\n\"b\" 1}"), "vocab.json: not valid JSON at line 3");
  EXPECT_EQ(RefusedVocab(good + "x"), "vocab.json: not valid JSON at line 259");
  EXPECT_EQ(RefusedVocab("\"\xFF\""), "vocab.json: not valid JSON at line 1");
  EXPECT_EQ(RefusedVocab("3"), "vocab.json: expected one object of tokens and their ids");
  EXPECT_EQ(RefusedVocab("[]"), "vocab.json: expected one object of tokens and their ids");
  EXPECT_EQ(RefusedVocab("{}"),
            "vocab.json: no token for byte 0x00 ('\u0100'); a byte-level vocabulary has all 256");
  EXPECT_EQ(RefusedVocab(std::string(100000, '[')),
            "vocab.json: expected one object of tokens and their ids");
  for (const char* value : {"-1", "1.5", "\"256\"", "null", "true", "[]", "{}", "1e400"}) {
    EXPECT_NE(RefusedVocab(Edited(good, "\"ab\": 256", "\"ab\": " + std::string(value))),
              "accepted")
        << value;
  }
  EXPECT_EQ(RefusedVocab(Edited(good, "\"ab\": 256", "\"ab\": null")),
            "vocab.json: token \"ab\" has no whole number as its id");
  for (const char* id : {"257", "16777216", "4294967552", "18446744073709551615"}) {
    EXPECT_EQ(RefusedVocab(Edited(good, "\"ab\": 256", "\"ab\": " + std::string(id))),
              "vocab.json: token \"ab\" has an id outside 0..256, the range for 257 tokens");
  }
  EXPECT_EQ(RefusedVocab(Edited(good, "\"ab\": 256", "\"ab\": 32")),
            "vocab.json: id 32 belongs to two tokens, \"A\" and \"ab\"");
  EXPECT_EQ(RefusedVocab(Edited(good, "\"ab\": 256", "\"A\": 256")),
            "vocab.json: token \"A\" appears twice");
  EXPECT_EQ(RefusedVocab(Edited(good, "\"ab\": 256", "\"\": 256")),
            "vocab.json: the token with id 256 is empty");
  EXPECT_EQ(RefusedVocab(Edited(good, "\"Ġ\": 220", "\"ba\": 220")),
            "vocab.json: no token for byte 0x20 ('Ġ'); a byte-level vocabulary has all 256");
}

TEST(TokenizerFiles, RefusesBrokenMerges) {
  EXPECT_EQ(RefusedMerges(""), "accepted");
  EXPECT_EQ(RefusedMerges("a b"), "accepted");
  EXPECT_EQ(RefusedMerges("a b\n"), "accepted");
  EXPECT_EQ(RefusedMerges("#version: 0.2\na b\n"), "accepted");
  EXPECT_EQ(RefusedMerges("#version: 0.2\r\na b\r\n"), "accepted");
  EXPECT_EQ(RefusedMerges("#version: 0.2\nab\n"),
            "merges.txt, line 2: found \"ab\", expected two tokens with one space between");
  for (const char* line : {"a  b", " ab", "ab ", "a b c", "a\tb", "\n", " ", "a b\n\n"}) {
    EXPECT_THAT(RefusedMerges(line), ::testing::HasSubstr("expected two tokens")) << line;
  }
  EXPECT_EQ(RefusedMerges("a b\nb a"), "merges.txt, line 2: \"ba\" is not in the vocabulary");
  EXPECT_EQ(RefusedMerges("日 b"), "merges.txt, line 1: \"日\" is not in the vocabulary");
  EXPECT_EQ(RefusedMerges("\xFF b"), "merges.txt, line 1: \"\uFFFD\" is not in the vocabulary");
  EXPECT_EQ(RefusedMerges("a b\na b"),
            "merges.txt, line 2: the merge of \"a\" and \"b\" appears twice");
  EXPECT_THAT(RefusedMerges("a b\n#version: 0.2"), ::testing::HasSubstr("line 2"));
}

// A token of characters outside the alphabet stands for itself and never gets in the way of the
// bytes.
TEST(TokenizerFiles, TokensOfOtherCharactersStandForThemselves) {
  Json vocab = Json::object();
  vocab["日"] = 0;
  const std::vector<std::string> tokens = ByteTokens({"\xE6\x97", "日"});
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[BytesToSymbols(tokens[id])] = id + 1;
  const std::string symbols = BytesToSymbols("日");
  ASSERT_EQ(symbols.size(), 6u);
  const std::string merges = symbols.substr(0, 2) + " " + symbols.substr(2, 2) + "\n" +
                             symbols.substr(0, 4) + " " + symbols.substr(4);
  const Tokenizer tokenizer = Tokenizer::FromVocabularyAndMerges(ToText(vocab), merges);
  EXPECT_EQ(tokenizer.TokenBytes(0), "日");
  EXPECT_EQ(tokenizer.TokenBytes(258), "日");
  EXPECT_EQ(tokenizer.FindToken("日"), 258);
  EXPECT_EQ(tokenizer.Encode("日"), Ids{258});
  const Tokenizer again = Tokenizer::FromVocabularyAndMerges(
      WriteVocabJson(tokenizer.vocabulary()), WriteMergesTxt(tokenizer.vocabulary()));
  EXPECT_EQ(again.TokenBytes(0), "日");
  EXPECT_EQ(again.Encode("日"), Ids{258});
}

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

TEST(TokenizerFiles, ReadsTokenizerJsonInBothForms) {
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

TEST(TokenizerFiles, RefusesByNameWhatGpt2DoesNotHave) {
  const auto refused = [](const char* pointer, const Json& value) {
    Json json = GoodTokenizerJson();
    json[Json::json_pointer(pointer)] = value;
    return RefusedJson(json);
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(RefusedJson(GoodTokenizerJson()), "accepted");
  EXPECT_EQ(refused("/normalizer", {{"type", "NFC"}}),
            "tokenizer.json: the normalizer \"NFC\" is not supported; GPT-2 has none");
  EXPECT_EQ(refused("/pre_tokenizer", {{"type", "Metaspace"}}),
            "tokenizer.json: the pre_tokenizer is \"Metaspace\"; only ByteLevel is supported, as "
            "GPT-2 has it");
  EXPECT_THAT(refused("/pre_tokenizer", nullptr), HasSubstr("the pre_tokenizer is null"));
  EXPECT_THAT(refused("/pre_tokenizer", "ByteLevel"), HasSubstr("the pre_tokenizer is"));
  EXPECT_THAT(refused("/decoder/type", "WordPiece"), HasSubstr("the decoder is \"WordPiece\""));
  EXPECT_THAT(refused("/model/type", "Unigram"), HasSubstr("the model is \"Unigram\""));
  EXPECT_THAT(refused("/model", nullptr), HasSubstr("there is no model"));
  EXPECT_THAT(refused("/pre_tokenizer/add_prefix_space", true),
              HasSubstr("add_prefix_space = true"));
  EXPECT_THAT(refused("/pre_tokenizer/use_regex", false), HasSubstr("use_regex = false"));
  EXPECT_THAT(refused("/model/dropout", 0.1), HasSubstr("dropout = 0.1"));
  EXPECT_EQ(refused("/model/dropout", 0), "accepted");
  EXPECT_THAT(refused("/model/continuing_subword_prefix", "##"),
              HasSubstr("continuing_subword_prefix"));
  EXPECT_THAT(refused("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(refused("/model/byte_fallback", true), HasSubstr("byte_fallback"));
  EXPECT_THAT(refused("/model/ignore_merges", true), HasSubstr("ignore_merges"));
  EXPECT_THAT(refused("/added_tokens/0/lstrip", true), HasSubstr("lstrip = true"));
  EXPECT_THAT(refused("/added_tokens/0/single_word", true), HasSubstr("single_word = true"));
}

TEST(TokenizerFiles, RefusesBrokenTokenizerJson) {
  const auto refused = [](const char* pointer, const Json& value) {
    Json json = GoodTokenizerJson();
    json[Json::json_pointer(pointer)] = value;
    return RefusedJson(json);
  };
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
