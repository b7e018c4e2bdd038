// SPDX-License-Identifier: MIT
// vocab.json and merges.txt as they come, good and hostile.
#include "text/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/refusal.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;

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

}  // namespace
}  // namespace clearhead
