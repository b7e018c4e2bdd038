// SPDX-License-Identifier: MIT
// A text that is one huge word must not take time or stack that grows with its square.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <string>

#include "core/random.h"
#include "text/bpe_train.h"
#include "text/small_sentencepiece.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

std::string Repeat(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

std::string RandomLetters(std::size_t bytes) {
  RandomStream random(1);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>('a' + random.Below(26));
  return text;
}

// Processor time, which other programs on the machine do not change much.
double BestSeconds(const std::function<void()>& work, int repeats) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t start = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

// Ten times the text must be far from a hundred times the work.
void ExpectNearlyLinear(const Tokenizer& tokenizer, const std::string& short_text,
                        const std::string& long_text) {
  const double short_time = BestSeconds([&] { tokenizer.Encode(short_text); }, 5);
  const double long_time = BestSeconds([&] { tokenizer.Encode(long_text); }, 2);
  EXPECT_LT(long_time, 40 * short_time + 0.05);
}

class LinearTime : public ::testing::TestWithParam<std::function<std::string(std::size_t)>> {};

TEST_P(LinearTime, TenTimesTheTextIsFarFromAHundredTimesTheWork) {
  // Merges for all that follows, so that the merge loop has work at every length.
  const std::string sample = Repeat("a", 4096) + " " + Repeat("  ", 4096) + "." +
                             Repeat("🙂", 4096) + " " + RandomLetters(20000) + " " +
                             Repeat("\xFF", 4096);
  const std::vector<std::string_view> texts = {sample};
  const Tokenizer tokenizer = TrainBpe(texts, {.vocabulary_size = 1000});
  const std::string short_text = GetParam()(100'000);
  const std::string long_text = GetParam()(1'000'000);
  EXPECT_EQ(tokenizer.DecodeBytes(tokenizer.Encode(long_text)), long_text);
  ExpectNearlyLinear(tokenizer, short_text, long_text);
  Vocabulary vocabulary = tokenizer.vocabulary();
  vocabulary.rules = {.nfc = true, .words = WordRule::kLlama3, .whole_words = true};
  ExpectNearlyLinear(Tokenizer(std::move(vocabulary)), short_text, long_text);
}

// Vocabularies of characters merge a whole line at once where their tokens hold spaces.
TEST_P(LinearTime, WholeLinesOfCharacters) {
  std::vector<ScoredPiece> pieces = {{"7", 0}, {"<", 0}, {"🙂", 0}, {" a", 1}, {"a b", 2}};
  std::vector<std::string> written = {"\u2581", "7", "<", "🙂"}, merges;
  std::string run;
  for (int i = 1; i <= 16; ++i) {
    for (const char unit : {'a', ' '}) {
      pieces.push_back({std::string(i, unit), static_cast<float>(-i)});
    }
    run += 'a';
    written.push_back(run);
    if (i > 1) merges.push_back(run.substr(1) + " a");
  }
  written.push_back("a\u2581");  // a token across words: no splitting
  merges.push_back("a \u2581");
  const std::string short_text = GetParam()(100'000);
  const std::string long_text = GetParam()(1'000'000);
  const Tokenizer bin = Tokenizer::FromTokenizerBin(TokenizerBin(pieces));
  EXPECT_EQ(bin.vocabulary().rules.words, WordRule::kWhole);
  EXPECT_EQ(bin.DecodePrompt(bin.EncodePrompt(long_text)), long_text);
  ExpectNearlyLinear(bin, short_text, long_text);
  const Tokenizer json =
      Tokenizer::FromTokenizerJson(ToText(CharacterTokenizerJson(written, merges)));
  EXPECT_EQ(json.vocabulary().rules.words, WordRule::kWhole);
  EXPECT_EQ(json.DecodeBytes(json.Encode(long_text)), long_text);
  ExpectNearlyLinear(json, short_text, long_text);
}

// Marks in the wrong order, which a simple sort would take the square of their number for.
std::string Marks(std::size_t bytes) {
  return std::string("a").append(Repeat("\u0301\u0316", bytes));
}

INSTANTIATE_TEST_SUITE_P(HugeWords, LinearTime,
                         ::testing::Values([](std::size_t n) { return Repeat("a", n); },
                                           [](std::size_t n) { return RandomLetters(n); },
                                           [](std::size_t n) { return Repeat(" ", n); },
                                           [](std::size_t n) { return Repeat(" ", n) + "x"; },
                                           [](std::size_t n) {
                                             return Repeat("\n \u3000", n) + "x";
                                           },
                                           [](std::size_t n) { return Repeat("🙂", n); },
                                           [](std::size_t n) { return Marks(n); },
                                           [](std::size_t n) { return Repeat("\xFF", n); },
                                           [](std::size_t n) { return Repeat("<", n); },
                                           [](std::size_t n) { return Repeat("7", n); }));

}  // namespace
}  // namespace clearhead
