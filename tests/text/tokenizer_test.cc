// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "text/bpe.h"
#include "text/bpe_train.h"
#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tokenizer Trained(std::int32_t size = 400) {
  const std::string text = MakeText(20000, 1);
  const std::vector<std::string_view> texts = {text};
  return TrainBpe(texts, {.vocabulary_size = size});
}

// tokenizer.json of the bytes, "ab", "abc" and `added`.
Json TokenizerJson(const Json& added) {
  Json vocab = Json::object();
  const std::vector<std::string> tokens = ByteTokens({"ab", "abc"});
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[BytesToSymbols(tokens[id])] = id;
  return {{"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}}};
}

TEST(Tokenizer, MergesByRankFromTheLeft) {
  // Ranks: a+a, then aa+b. "aaab" is aa a b; joining from the right would give a aa b, then a aab.
  const Tokenizer tokenizer = Tokenizer::FromVocabularyAndMerges(
      VocabJson(ByteTokens({"aa", "aab"})), "#version: 0.2\na a\naa b\n");
  const std::int32_t a = *tokenizer.FindToken("a");
  const std::int32_t b = *tokenizer.FindToken("b");
  EXPECT_EQ(tokenizer.Encode("aaab"), (Ids{256, a, b}));
  EXPECT_EQ(tokenizer.Encode("aab"), Ids{257});
  EXPECT_EQ(tokenizer.Encode("aaaaab"), (Ids{256, 256, a, b}));
  EXPECT_EQ(tokenizer.Encode("aaaab"), (Ids{256, 257}));
  EXPECT_EQ(tokenizer.Encode(""), Ids{});
}

// The textbook loop: find the lowest rank, join all its occurrences from the left, repeat.
Ids MergeTextbook(const Vocabulary& vocabulary, std::string_view word) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> ranks;
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    ranks[{vocabulary.merges[i].left, vocabulary.merges[i].right}] = i;
  }
  Ids ids;
  for (const char c : word) ids.push_back(*vocabulary.tokens.Find({&c, 1}));
  for (;;) {
    std::size_t best = vocabulary.merges.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end()) best = std::min(best, found->second);
    }
    if (best == vocabulary.merges.size()) return ids;
    const Merge& merge = vocabulary.merges[best];
    Ids joined;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + 1 < ids.size() && ids[i] == merge.left && ids[i + 1] == merge.right) {
        joined.push_back(merge.result);
        ++i;
      } else {
        joined.push_back(ids[i]);
      }
    }
    ids = joined;
  }
}

TEST(Tokenizer, MergesAsTheTextbookLoopDoes) {
  const Tokenizer tokenizer = Trained();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const MergeRanks ranks(vocabulary.merges);
  const auto byte_ids = FindByteTokens(vocabulary.tokens, "test");
  WordMerger merger(vocabulary.merges, ranks, byte_ids);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string word = MakeText(seed % 53, seed) + RandomBytes(seed % 7, seed);
    Ids ids;
    merger.Append(word, &ids);
    EXPECT_EQ(ids, MergeTextbook(vocabulary, word));
  }
}

TEST(Tokenizer, RoundTripsAnyBytes) {
  const Tokenizer tokenizer = Trained();
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) every_byte += static_cast<char>(byte);
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode(every_byte)), every_byte);
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::string text = seed % 2 ? RandomNearUtf8(seed, seed) : RandomBytes(seed * 3, seed);
    if (seed % 5 == 0) text.insert(text.size() / 2, kEndOfText);
    for (const auto special : {SpecialTokens::kRecognise, SpecialTokens::kAsText}) {
      EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode(text, special)), text);
    }
  }
}

// Two thousand words share the places of the cache and must not be mixed up.
TEST(Tokenizer, RepeatedWordsEncodeAsAlone) {
  const Tokenizer tokenizer = Trained();
  RandomStream random(3);
  std::string text;
  Ids expected;
  for (int i = 0; i < 20000; ++i) {
    std::string word = " ";
    word.append(1 + random.Below(3), static_cast<char>('a' + random.Below(26)));
    word += static_cast<char>('a' + random.Below(26));
    text += word;
    const Ids ids = tokenizer.Encode(word);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer.Encode(text), expected);
}

TEST(Tokenizer, SpecialTokenOnAndOff) {
  const Tokenizer tokenizer = Trained();
  const std::int32_t end = *tokenizer.end_of_text();
  EXPECT_EQ(end, tokenizer.vocabulary_size() - 1);
  EXPECT_EQ(tokenizer.Encode("<|endoftext|>"), Ids{end});
  EXPECT_EQ(tokenizer.Encode("<|endoftext|><|endoftext|>"), (Ids{end, end}));
  const Ids cut = tokenizer.Encode("<|endoftext|");
  EXPECT_THAT(cut, ::testing::Not(::testing::Contains(end)));
  const Ids plain = tokenizer.Encode("<|endoftext|>", SpecialTokens::kAsText);
  EXPECT_THAT(plain, ::testing::Not(::testing::Contains(end)));
  EXPECT_EQ(tokenizer.DecodeBytes(plain), "<|endoftext|>");
}

TEST(Tokenizer, AddedTokensLongestFirstAndPlainOnesAlways) {
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(ToText(TokenizerJson({
      {{"id", 258}, {"content", "<x>"}, {"special", true}},
      {{"id", 259}, {"content", "<x>y"}, {"special", true}},
      {{"id", 260}, {"content", "two words"}, {"special", false}},
      {{"id", 261}, {"content", "日"}, {"special", false}},
  })));
  EXPECT_EQ(tokenizer.Encode("<x><x>y"), (Ids{258, 259}));
  EXPECT_EQ(tokenizer.Encode("abctwo wordsab"), (Ids{257, 260, 256}));
  EXPECT_EQ(tokenizer.Encode("two words", SpecialTokens::kAsText), Ids{260});
  EXPECT_EQ(tokenizer.Encode("<x>", SpecialTokens::kAsText).size(), 3u);
  EXPECT_EQ(tokenizer.DecodeBytes(Ids{258, 260, 261}), "<x>two words日");
  EXPECT_EQ(tokenizer.Encode("日"), Ids{261});
  EXPECT_EQ(tokenizer.end_of_text(), std::nullopt);
  EXPECT_EQ(tokenizer.vocabulary_size(), 262);
  // The pair of files has no place for such tokens: the file they came from is saved.
  TemporaryFolder folder;
  tokenizer.Save(folder / "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "new/vocab.json"));
  EXPECT_EQ(Tokenizer::Load(folder / "new").Encode("<x><x>y"), (Ids{258, 259}));
  EXPECT_THAT([&] { Tokenizer(tokenizer.vocabulary()).Save(folder / "other"); },
              ThrowsMessage<Error>(HasSubstr("'<x>'")));
}

TEST(Tokenizer, RefusesIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer = Trained(300);
  EXPECT_EQ(tokenizer.vocabulary_size(), 300);
  for (const std::int32_t id : {-1, 300, 50256, INT32_MAX, INT32_MIN}) {
    const auto message =
        ThrowsMessage<Error>(AllOf(HasSubstr(fmt::format("id {} ", id)), HasSubstr("300 tokens")));
    EXPECT_THAT([&] { tokenizer.DecodeBytes(Ids{0, id}); }, message);
    EXPECT_THAT([&] { tokenizer.TokenText(id); }, message);
  }
}

TEST(Tokenizer, FindsTokensAndShowsThem) {
  const Tokenizer tokenizer = Trained();
  EXPECT_EQ(tokenizer.TokenText(*tokenizer.FindToken(" ")), " ");
  EXPECT_EQ(tokenizer.TokenText(*tokenizer.FindToken("\xFF")), "\uFFFD");
  EXPECT_EQ(tokenizer.FindToken("<|endoftext|>"), tokenizer.end_of_text());
  EXPECT_NE(tokenizer.FindToken(" the"), std::nullopt);
  EXPECT_EQ(tokenizer.FindToken("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.FindToken(""), std::nullopt);
}

TEST(Tokenizer, CopiesOutliveTheOriginal) {
  const std::string text = "the other day";
  Ids expected;
  const auto copy = [&] {
    const Tokenizer original = Trained();
    expected = original.Encode(text);
    return Tokenizer(original);
  }();
  EXPECT_EQ(copy.Encode(text), expected);
}

TEST(Tokenizer, SaveAndLoadEncodeTheSame) {
  const Tokenizer tokenizer = Trained();
  TemporaryFolder folder;
  tokenizer.Save(folder / "new");
  const Tokenizer loaded = Tokenizer::Load(folder / "new");
  ASSERT_EQ(loaded.vocabulary_size(), tokenizer.vocabulary_size());
  EXPECT_EQ(loaded.end_of_text(), tokenizer.end_of_text());
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    EXPECT_EQ(loaded.TokenBytes(id), tokenizer.TokenBytes(id));
  }
  const std::string text = MakeText(5000, 7) + "<|endoftext|>" + RandomBytes(1001, 7);
  EXPECT_EQ(loaded.Encode(text), tokenizer.Encode(text));
  EXPECT_TRUE(ReadFile(folder / "new/merges.txt").starts_with("#version: 0.2\n"));
}

TEST(Tokenizer, LoadPrefersTokenizerJson) {
  TemporaryFolder folder;
  EXPECT_FALSE(HasTokenizer(folder.path()));
  EXPECT_THAT([&] { Tokenizer::Load(folder.path()); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr(folder.path().string()),
                        HasSubstr("tokenizer.json, vocab.json and merges.txt, or tokenizer.bin"))));
  WriteFile(folder / "vocab.json", VocabJson(ByteTokens({"xy"})));
  EXPECT_FALSE(HasTokenizer(folder.path())) << "merges.txt is missing";
  WriteFile(folder / "merges.txt", "x y");
  EXPECT_TRUE(HasTokenizer(folder.path()));
  EXPECT_EQ(Tokenizer::Load(folder.path()).vocabulary_size(), 257);
  WriteFile(folder / "tokenizer.json", ToText(TokenizerJson(Json::array())));
  EXPECT_EQ(Tokenizer::Load(folder.path()).vocabulary_size(), 258);
  // A pair written beside another tokenizer.json would never be read.
  EXPECT_THAT([&] { Trained(300).Save(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("holds the tokenizer.json of another tokenizer")));
}

// A folder may say with tokenizer_config.json what comes first.
TEST(Tokenizer, TokenizerConfigHasTheLastWord) {
  TemporaryFolder folder;
  const Json added = {{{"id", 258}, {"content", "<x>"}, {"special", true}}};
  WriteFile(folder / "tokenizer.json", ToText(TokenizerJson(added)));
  EXPECT_EQ(Tokenizer::Load(folder.path()).begin_of_text(), std::nullopt);
  const auto with = [&](const char* config) {
    WriteFile(folder / "tokenizer_config.json", config);
    return Tokenizer::Load(folder.path());
  };
  EXPECT_EQ(with(R"({"bos_token": "<x>"})").begin_of_text(), std::nullopt);
  EXPECT_EQ(with(R"({"bos_token": "<x>", "add_bos_token": true})").EncodePrompt("ab"),
            (Ids{258, 256}));
  EXPECT_EQ(with(R"({"bos_token": {"content": "<x>"}, "add_bos_token": true})").begin_of_text(),
            258);
  EXPECT_EQ(with(R"({"eos_token": "<x>"})").end_of_text(), 258);
  EXPECT_THAT([&] { with(R"({"add_bos_token": true, "bos_token": "<y>"})"); },
              ThrowsMessage<Error>(HasSubstr("bos_token is no token of the vocabulary")));
  EXPECT_THAT([&] { with("[]"); }, ThrowsMessage<Error>(HasSubstr("expected a JSON object")));
  // It is saved with the tokenizer.
  with(R"({"bos_token": "<x>", "add_bos_token": true})").Save(folder / "copy");
  EXPECT_EQ(Tokenizer::Load(folder / "copy").begin_of_text(), 258);
}

}  // namespace
}  // namespace clearhead
