// SPDX-License-Identifier: MIT
// Vocabularies of characters, from tokenizer.json and tokenizer.bin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "text/piece_merge.h"
#include "text/refusal.h"
#include "text/small_sentencepiece.h"
#include "text/test_tokenizer.h"
#include "text/token_stream.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::HasSubstr;

// Ids: 259 "▁", 260 "a", 261 "b", 262 "▁a", 263 "ab", 264 "▁▁", 265 "é".
Json SmallJson() {
  return CharacterTokenizerJson({"\u2581", "a", "b", "\u2581a", "ab", "\u2581\u2581", "\u00E9"},
                                {"\u2581 a", "a b", "\u2581 \u2581"});
}

Tokenizer Load(const Json& json) { return Tokenizer::FromTokenizerJson(ToText(json)); }

Json With(const char* pointer, const Json& value) {
  Json json = SmallJson();
  json[Json::json_pointer(pointer)] = value;
  return json;
}

TEST(SentencePiece, AsLlama2HasIt) {
  const Tokenizer tokenizer = Load(SmallJson());
  EXPECT_EQ(tokenizer.vocabulary().rules.words, WordRule::kSpaceRuns);
  EXPECT_EQ(tokenizer.end_of_text(), 2);
  EXPECT_EQ(tokenizer.begin_of_text(), std::nullopt);
  EXPECT_EQ(tokenizer.Encode(""), Ids{});
  EXPECT_EQ(tokenizer.Encode("a"), Ids{262});
  EXPECT_EQ(tokenizer.Encode("ab"), (Ids{262, 261}));
  EXPECT_EQ(tokenizer.Encode(" a\u2581a"), (Ids{259, 262, 262}));
  EXPECT_EQ(tokenizer.Encode("   "), (Ids{264, 264}));
  EXPECT_EQ(tokenizer.Encode("\n\u00E9\u00E8\xFF"), (Ids{259, 13, 265, 0xC3 + 3, 0xA8 + 3, 258}));
  // Every stretch between special tokens gets its space.
  EXPECT_EQ(tokenizer.Encode("a<s>a"), (Ids{262, 1, 262}));
  EXPECT_EQ(tokenizer.Encode("<s>"), Ids{1});
  EXPECT_EQ(tokenizer.EncodeContinuation("a<s>a"), (Ids{260, 1, 262}));
  EXPECT_EQ(tokenizer.Encode("<s>", SpecialTokens::kAsText).size(), 4u);
  EXPECT_EQ(tokenizer.DecodeBytes(Ids{262, 262, 1, 13}), "a a<s>\n");
  EXPECT_EQ(tokenizer.DecodeBytes(Ids{260, 262}), "a a");
  EXPECT_EQ(tokenizer.FindToken("a"), 260) << "the piece, not the byte";
}

TEST(SentencePiece, Metaspace) {
  Json json = SmallJson();
  json["normalizer"] = nullptr;
  const auto with = [&](const char* scheme, bool split) {
    json["pre_tokenizer"] = Metaspace(scheme, split);
    return Load(json);
  };
  const Tokenizer first = with("first", false);
  EXPECT_EQ(first.Encode("a<s>a"), (Ids{262, 1, 260}));
  EXPECT_EQ(first.Encode("<s>a"), (Ids{1, 260}));
  EXPECT_EQ(first.Encode(" a"), Ids{262});
  EXPECT_EQ(first.Encode("\u2581\u2581"), Ids{264});
  const Tokenizer always = with("always", false);
  EXPECT_EQ(always.Encode("a<s>a"), (Ids{262, 1, 262}));
  EXPECT_EQ(always.Encode("a<s> a"), (Ids{262, 1, 262}));
  EXPECT_EQ(with("never", false).Encode("a a"), (Ids{260, 262}));
  // Every space starts a word: two never join.
  EXPECT_EQ(with("always", true).Encode("a  b"), (Ids{262, 259, 259, 261}));
  EXPECT_EQ(with("always", false).Encode("a  b"), (Ids{262, 264, 261}));
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"add_prefix_space", false}};
  EXPECT_EQ(Load(json).vocabulary().rules.words, WordRule::kEverySpace);
  EXPECT_EQ(Load(json).Encode("a"), Ids{260});
  json["decoder"] = Metaspace("first", true);
  EXPECT_EQ(Load(json).DecodeBytes(Ids{264, 264}), "  ");
  json["decoder"] = Metaspace("never", true);
  EXPECT_EQ(Load(json).DecodeBytes(Ids{264}), "  ");
}

TEST(SentencePiece, NormalisedTokensCarryTheirSpace) {
  // Found in the normalised text, and normalised themselves: only with the space before it.
  const Tokenizer tokenizer = Load(With("/added_tokens/1/normalized", true));
  EXPECT_EQ(tokenizer.Encode("<s>a"), (Ids{1, 260}));
  EXPECT_EQ(tokenizer.Encode("a <s>"), (Ids{262, 1}));
  EXPECT_EQ(tokenizer.Encode("a<s>"), tokenizer.Encode("a<s>", SpecialTokens::kAsText));
}

// Words alone or the text as a whole: the same, if no token goes across.
TEST(SentencePiece, SplittingAtSpacesChangesNothing) {
  RandomStream random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<ScoredPiece> pieces;
    std::set<std::string> known;
    for (int i = 0; i < 40; ++i) {
      std::string piece(random.Below(3), ' ');
      for (std::uint64_t n = random.Below(4); n > 0; --n) {
        piece += static_cast<char>('a' + random.Below(3));
      }
      // Few different scores: ties are common.
      if (!piece.empty() && known.insert(piece).second) {
        pieces.push_back({piece, static_cast<float>(random.Below(6))});
      }
    }
    const Tokenizer words = Tokenizer::FromTokenizerBin(TokenizerBin(pieces));
    ASSERT_EQ(words.vocabulary().rules.words, WordRule::kSpaceRuns);
    Vocabulary vocabulary = words.vocabulary();
    vocabulary.rules.words = WordRule::kWhole;
    const Tokenizer whole(vocabulary);
    std::string text;
    for (int i = 0; i < 300; ++i) text += "  abcd\n"[random.Below(7)];
    EXPECT_EQ(words.Encode(text), whole.Encode(text));
    EXPECT_EQ(EncodeParallel(words, text, SpecialTokens::kRecognise, 7), words.Encode(text));
    EXPECT_EQ(words.DecodePrompt(words.EncodePrompt(text)), text);
  }
}

// The rule as it is told: the best joined piece of all, leftmost, one join at a time.
Ids MergeByTheRule(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (;;) {
    std::size_t best = parts.size();
    float best_score = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto id = vocabulary.tokens.Find(parts[i] + parts[i + 1]);
      if (!id || *id < 259) continue;
      if (best == parts.size() || vocabulary.scores[*id] > best_score) {
        best = i;
        best_score = vocabulary.scores[*id];
      }
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*vocabulary.tokens.Find(part));
  return ids;
}

TEST(SentencePiece, MergesAsTheRuleIsTold) {
  RandomStream random(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<ScoredPiece> pieces = {{"a", -1}, {"b", -1}, {"c", -1}};
    std::set<std::string> known = {"a", "b", "c"};
    for (int i = 0; i < 30; ++i) {
      std::string piece;
      for (std::uint64_t n = 2 + random.Below(4); n > 0; --n) {
        piece += static_cast<char>('a' + random.Below(3));
      }
      if (known.insert(piece).second) {
        pieces.push_back({piece, static_cast<float>(random.Below(8))});
      }
    }
    const Tokenizer tokenizer = Tokenizer::FromTokenizerBin(TokenizerBin(pieces));
    const PieceTable table(tokenizer.vocabulary());
    PieceMerger merger(table);
    std::string text;
    for (int i = 0; i < 60; ++i) text += static_cast<char>('a' + random.Below(3));
    Ids ids;
    merger.Append(text, &ids);
    EXPECT_EQ(ids, MergeByTheRule(tokenizer.vocabulary(), text)) << text;
  }
}

TEST(SentencePiece, RefusesByNameWhatIsMissing) {
  const auto refused = [](const Json& json) { return Refusal([&] { Load(json); }); };
  EXPECT_EQ(refused(SmallJson()), "accepted");
  EXPECT_EQ(refused(With("/model/byte_fallback", false)),
            "tokenizer.json: a vocabulary of characters without byte_fallback is not supported: it "
            "would lose text");
  EXPECT_THAT(refused(With("/model/ignore_merges", true)), HasSubstr("ignore_merges = true"));
  Json json = SmallJson();
  json["model"]["vocab"].erase("<0x41>");
  json["model"]["vocab"]["<0x4G>"] = 68;
  EXPECT_EQ(refused(json), "tokenizer.json: no token <0x41>; byte_fallback needs all 256");
  EXPECT_THAT(refused(With("/decoder", nullptr)), HasSubstr("the decoder is null"));
  EXPECT_THAT(refused(With("/decoder", {{"type", "ByteLevel"}})),
              HasSubstr("the decoder is \"ByteLevel\""));
  EXPECT_THAT(refused(With("/decoder/decoders/3/start", 2)), HasSubstr("the decoder is \"Strip\""));
  EXPECT_THAT(refused(With("/decoder/decoders/2/type", "ByteFallback")),
              HasSubstr("the decoder is \"Strip\""))
      << "each token would be stripped";
  EXPECT_THAT(refused(With("/pre_tokenizer", Metaspace("first", false))),
              HasSubstr("the pre_tokenizer is \"Metaspace\""));
  EXPECT_THAT(refused(With("/pre_tokenizer", {{"type", "ByteLevel"}})),
              HasSubstr("the pre_tokenizer is \"ByteLevel\""));
  json = SmallJson();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = Metaspace("sometimes", false);
  EXPECT_THAT(refused(json), HasSubstr("prepend_scheme = \"sometimes\""));
  json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}};
  EXPECT_THAT(refused(json), HasSubstr("replacement = \"_\""));
  EXPECT_THAT(refused(With("/model/merges/0", "b a")), HasSubstr("merge 0: \"ba\" is not in"));
  EXPECT_THAT(refused(With("/model/merges/1", "\u2581 a")), HasSubstr("appears twice"));
  EXPECT_THAT(refused(With("/model/vocab/ab", 262)), HasSubstr("id 262 belongs to two tokens"));
}

// Tokens that the normalised text cannot hold do not get in the way of those it can.
TEST(SentencePiece, OddTokensStandForThemselves) {
  const Tokenizer tokenizer =
      Load(CharacterTokenizerJson({" ", "\u2581", " a", "a", "\u2581a"}, {"\u2581 a"}));
  EXPECT_EQ(tokenizer.Encode("a "), (Ids{263, 260}));
  EXPECT_EQ(tokenizer.TokenBytes(259), " ");
  EXPECT_EQ(tokenizer.TokenBytes(261), " a");
}

}  // namespace
}  // namespace clearhead
