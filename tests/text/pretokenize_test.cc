// SPDX-License-Identifier: MIT
#include "text/pretokenize.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

using Words = std::vector<std::string>;

Words SplitWords(std::string_view text, WordRule rule = WordRule::kGpt2) {
  const Pretokenizer pretokenizer(rule);
  Pretokenizer::Splitter splitter(pretokenizer);
  splitter.Start(text);
  Words words;
  std::string_view word;
  while (splitter.Next(&word)) words.emplace_back(word);
  return words;
}

TEST(Pretokenize, WordsNumbersAndSigns) {
  EXPECT_EQ(SplitWords(""), Words{});
  EXPECT_EQ(SplitWords("a"), Words{"a"});
  EXPECT_EQ(SplitWords("Hello world"), (Words{"Hello", " world"}));
  EXPECT_EQ(SplitWords("abc123 45x!?"), (Words{"abc", "123", " 45", "x", "!?"}));
  EXPECT_EQ(SplitWords("x ... y"), (Words{"x", " ...", " y"}));
  EXPECT_EQ(SplitWords("naïve 日本 Ⅷ½"), (Words{"naïve", " 日本", " Ⅷ½"}));
  EXPECT_EQ(SplitWords("a_b"), (Words{"a", "_", "b"}));
}

TEST(Pretokenize, Contractions) {
  EXPECT_EQ(SplitWords("don't we'll I'd"), (Words{"don", "'t", " we", "'ll", " I", "'d"}));
  EXPECT_EQ(SplitWords("I'm they're you've it's"),
            (Words{"I", "'m", " they", "'re", " you", "'ve", " it", "'s"}));
  // Upper case is not a contraction, and neither is one after a space or another sign.
  EXPECT_EQ(SplitWords("IT'S"), (Words{"IT", "'", "S"}));
  EXPECT_EQ(SplitWords("a 's ''s"), (Words{"a", " '", "s", " ''", "s"}));
  EXPECT_EQ(SplitWords("'something"), (Words{"'s", "omething"}));
}

TEST(Pretokenize, Spaces) {
  EXPECT_EQ(SplitWords("a  b"), (Words{"a", " ", " b"}));
  EXPECT_EQ(SplitWords("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(SplitWords("a\n\nb"), (Words{"a", "\n", "\n", "b"}));
  EXPECT_EQ(SplitWords("a\n b"), (Words{"a", "\n", " b"}));
  EXPECT_EQ(SplitWords("a \n"), (Words{"a", " \n"}));
  EXPECT_EQ(SplitWords("   "), Words{"   "});
  EXPECT_EQ(SplitWords("\tx"), (Words{"\t", "x"}));
  // All of White_Space, and only that: U+180E and U+200B are not.
  for (const char* space : {"\u0085", "\u00A0", "\u1680", "\u2000", "\u200A", "\u2028", "\u2029",
                            "\u202F", "\u205F", "\u3000", "\v", "\f", "\r"}) {
    EXPECT_EQ(SplitWords(std::string("!") + space + "!"), (Words{"!", space, "!"}));
  }
  for (const char* sign : {"\u180E", "\u200B", "\uFEFF", "\x1C", "\x1F"}) {
    EXPECT_EQ(SplitWords(std::string("!") + sign + "!"), Words{std::string("!") + sign + "!"});
  }
}

TEST(Pretokenize, IllFormedPartsCountAsSigns) {
  EXPECT_EQ(SplitWords("\xFF\xFE!"), Words{"\xFF\xFE!"});
  EXPECT_EQ(SplitWords("a \xFF"
                       "b"),
            (Words{"a", " \xFF", "b"}));
  EXPECT_EQ(SplitWords("a\xE6\x97 b"), (Words{"a", "\xE6\x97", " b"}));
  EXPECT_EQ(SplitWords("\xF0\x9F\x99\xE3\x80\x80x"), (Words{"\xF0\x9F\x99", "\u3000", "x"}));
  EXPECT_EQ(SplitWords(std::string_view("\0a\0", 3)),
            (Words{std::string(1, '\0'), "a", std::string(1, '\0')}));
}

TEST(Pretokenize, Llama3AndQwen2) {
  constexpr WordRule kLlama3 = WordRule::kLlama3, kQwen2 = WordRule::kQwen2;
  for (const WordRule rule : {kLlama3, kQwen2}) {
    EXPECT_EQ(SplitWords("Hello world", rule), (Words{"Hello", " world"}));
    // Contractions in any case, also Unicode's: the long s is an s.
    EXPECT_EQ(SplitWords("IT'S we'Ll a'\u017F", rule),
              (Words{"IT", "'S", " we", "'Ll", " a", "'\u017F"}));
    EXPECT_EQ(SplitWords("'The", rule), (Words{"'T", "he"}));
    // One sign or space joins the letters after it, line ends the signs before them.
    EXPECT_EQ(SplitWords("a(b\tc", rule), (Words{"a", "(b", "\tc"}));
    EXPECT_EQ(SplitWords("x!\r\n\ny", rule), (Words{"x", "!\r\n\n", "y"}));
    EXPECT_EQ(SplitWords("a \n \n  b", rule), (Words{"a", " \n \n", " ", " b"}));
    EXPECT_EQ(SplitWords("a   1", rule), (Words{"a", "  ", " ", "1"}));
    EXPECT_EQ(SplitWords("\xFF"
                         "a",
                         rule),
              Words{"\xFF"
                    "a"});
  }
  EXPECT_EQ(SplitWords("12345 6", kLlama3), (Words{"123", "45", " ", "6"}));
  EXPECT_EQ(SplitWords("123 4", kQwen2), (Words{"1", "2", "3", " ", "4"}));
}

TEST(Pretokenize, RulesOfSpaces) {
  EXPECT_EQ(SplitWords("", WordRule::kWhole), Words{});
  EXPECT_EQ(SplitWords(" a  b ", WordRule::kWhole), Words{" a  b "});
  EXPECT_EQ(SplitWords(" a  b ", WordRule::kSpaceRuns), (Words{" a", "  b", " "}));
  EXPECT_EQ(SplitWords(" a  b ", WordRule::kEverySpace), (Words{" a", " ", " b", " "}));
  EXPECT_EQ(SplitWords("a\nb\tc", WordRule::kSpaceRuns), Words{"a\nb\tc"});
}

constexpr WordRule kEveryRule[] = {WordRule::kGpt2,      WordRule::kLlama3,     WordRule::kQwen2,
                                   WordRule::kSpaceRuns, WordRule::kEverySpace, WordRule::kWhole};

TEST(Pretokenize, WordsAreTheText) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const std::string text = seed % 2 ? RandomNearUtf8(seed, seed) : RandomBytes(seed, seed);
    std::string joined;
    for (const std::string& word : SplitWords(text, kEveryRule[seed / 2 % 6])) {
      EXPECT_FALSE(word.empty());
      joined += word;
    }
    EXPECT_EQ(joined, text);
  }
}

// The claim of IsSafeCut, at every place of many texts.
TEST(Pretokenize, SafeCutsChangeNothing) {
  for (const WordRule rule : kEveryRule) {
    int cuts = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text =
          seed % 2 ? RandomNearUtf8(seed % 101, seed) : MakeText(seed % 101, seed);
      const Words whole = SplitWords(text, rule);
      for (std::size_t cut = 0; cut <= text.size() + 1; ++cut) {
        if (!IsSafeCut(rule, text, cut)) continue;
        ++cuts;
        Words parts = SplitWords(std::string_view(text).substr(0, cut), rule);
        const Words rest = SplitWords(std::string_view(text).substr(cut), rule);
        parts.insert(parts.end(), rest.begin(), rest.end());
        EXPECT_EQ(parts, whole) << "cut at " << cut;
      }
    }
    EXPECT_GT(cuts, rule == WordRule::kWhole ? -1 : 1000);
  }
}

TEST(Pretokenize, SafeCutsAreBeforeASpaceAfterNoSpace) {
  EXPECT_TRUE(IsSafeCut(WordRule::kGpt2, "a b", 1));
  EXPECT_TRUE(IsSafeCut(WordRule::kGpt2, "日\n", 3));
  EXPECT_TRUE(IsSafeCut(WordRule::kGpt2, "\u203F b", 3));
  EXPECT_FALSE(IsSafeCut(WordRule::kGpt2, "a b", 0));
  EXPECT_FALSE(IsSafeCut(WordRule::kGpt2, "a b", 2));
  EXPECT_FALSE(IsSafeCut(WordRule::kGpt2, "a b", 3));
  EXPECT_FALSE(IsSafeCut(WordRule::kGpt2, "a  b", 2));
  EXPECT_FALSE(IsSafeCut(WordRule::kLlama3, "!\n", 1));
  EXPECT_FALSE(IsSafeCut(WordRule::kSpaceRuns, "a\u2581 b", 4));
  EXPECT_FALSE(IsSafeCut(WordRule::kWhole, "a b", 1));
  for (const std::string space : {"\u0085", "\u00A0", "\u1680", "\u2000", "\u200A", "\u2028",
                                  "\u2029", "\u202F", "\u205F", "\u3000"}) {
    EXPECT_FALSE(IsSafeCut(WordRule::kGpt2, "a" + space + " b", 1 + space.size())) << space;
  }
}

}  // namespace
}  // namespace clearhead
