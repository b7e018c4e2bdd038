// SPDX-License-Identifier: MIT
#include "text/bpe_train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/pretokenize.h"
#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tokenizer Train(std::vector<std::string_view> texts, const BpeTraining& training) {
  return TrainBpe(texts, training);
}

std::vector<std::string> Learned(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (std::int32_t id = 256; id < tokenizer.vocabulary_size(); ++id) {
    tokens.emplace_back(tokenizer.TokenBytes(id));
  }
  return tokens;
}

// "hug" x10, "pug" x5, "pun" x12, "bun" x4, "hugs" x5 (each after a space): u+g 20, h+u 15, p+u 17,
// u+n 16, space+h 15, space+p 17, space+b 4, ...
//   1. ug 20
//   2. " p" 17: h+ug 15, p+u 12, u+n 16, " p" 17
//   3. un 16: then " h" 15, h+ug 15, " p"+un 12
//   4. " h" and "h"+"ug" tie at 15; ids decide: 'h' (71) before ' ' (220): hug
//   5. " hug" 15
TEST(BpeTrain, HandCheckedExample) {
  std::string text;
  for (const auto& [word, count] : std::vector<std::pair<std::string, int>>{
           {" hug", 10}, {" pug", 5}, {" pun", 12}, {" bun", 4}, {" hugs", 5}}) {
    for (int i = 0; i < count; ++i) text += word;
  }
  const Tokenizer tokenizer = Train({text}, {.vocabulary_size = 256 + 6 + 1});
  EXPECT_EQ(Learned(tokenizer),
            (std::vector<std::string>{"ug", " p", "un", "hug", " hug", " pun", "<|endoftext|>"}));
  EXPECT_EQ(tokenizer.end_of_text(), 262);
}

TEST(BpeTrain, TiesGoToTheSmallestIds) {
  const Tokenizer tokenizer = Train({"zy zy ba ba"}, {.vocabulary_size = 258});
  // z+y, b+a, space+z twice... by count: "zy" 2, "ba" 2, " b" 2, " z" 1; b (65) is the smallest
  // left id.
  EXPECT_EQ(Learned(tokenizer)[0], "ba");
}

TEST(BpeTrain, StopsWhenNothingRepeats) {
  EXPECT_EQ(Train({"abcdefg"}, {.vocabulary_size = 1000}).vocabulary_size(), 257);
  EXPECT_EQ(Train({}, {.vocabulary_size = 1000}).vocabulary_size(), 257);
  EXPECT_EQ(Train({""}, {.vocabulary_size = 257}).vocabulary_size(), 257);
  EXPECT_EQ(Learned(Train({"abc"}, {.vocabulary_size = 1000, .minimum_count = 1})),
            (std::vector<std::string>{"ab", "abc", "<|endoftext|>"}));
}

TEST(BpeTrain, NothingCrossesWordsOrDocuments) {
  // "x<|endoftext|>y" a hundred times: neither "xy" nor a piece of the separator may be learned.
  std::string text;
  for (int i = 0; i < 100; ++i) text += "x<|endoftext|>y";
  EXPECT_EQ(Learned(Train({text}, {.vocabulary_size = 300})),
            (std::vector<std::string>{"yx", "<|endoftext|>"}));
  // Neither across texts,
  EXPECT_EQ(Train({"a", "b", "a", "b", "a", "b"}, {.vocabulary_size = 300}).vocabulary_size(), 257);
  // nor across words.
  for (const std::string& token : Learned(Train({MakeText(20000, 3)}, {.vocabulary_size = 600}))) {
    if (token == kEndOfText) continue;
    EXPECT_EQ(token.find(' ', 1) == std::string::npos ||
                  token.find_first_not_of(" \n\r\t\u3000") == std::string::npos,
              true)
        << token;
  }
}

TEST(BpeTrain, SameTextSameResult) {
  const std::string text = MakeText(50000, 5);
  const Tokenizer one = Train({text}, {.vocabulary_size = 700});
  const Tokenizer two = Train({text}, {.vocabulary_size = 700});
  EXPECT_EQ(Learned(one), Learned(two));
  // Order of the texts does not matter either: only counts and ids do.
  const std::string other = MakeText(30000, 6);
  EXPECT_EQ(Learned(Train({text, other}, {.vocabulary_size = 700})),
            Learned(Train({other, text}, {.vocabulary_size = 700})));
}

// Counts everything anew for every merge.
std::vector<std::string> LearnSlowly(const std::string& text, int merges) {
  const Pretokenizer pretokenizer;
  Pretokenizer::Splitter splitter(pretokenizer);
  splitter.Start(text);
  std::vector<std::string> tokens = ByteTokens();
  std::map<std::string, int> ids;
  for (int id = 0; id < 256; ++id) ids[tokens[id]] = id;
  std::map<std::string, int> counts;
  std::string_view view;
  while (splitter.Next(&view)) ++counts[std::string(view)];
  std::vector<std::pair<std::vector<int>, int>> words;
  for (const auto& [word, count] : counts) {
    words.push_back({{}, count});
    for (const char c : word) words.back().first.push_back(ids[std::string(1, c)]);
  }
  std::vector<std::string> learned;
  while (static_cast<int>(learned.size()) < merges) {
    std::map<std::pair<int, int>, int> pairs;
    for (const auto& [word, count] : words) {
      for (std::size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
    }
    std::pair<int, int> best;
    int best_count = 1;
    for (const auto& [pair, count] : pairs) {
      if (count > best_count) best = pair, best_count = count;
    }
    if (best_count == 1) break;
    const std::string joined = tokens[best.first] + tokens[best.second];
    if (!ids.contains(joined)) {
      ids[joined] = static_cast<int>(tokens.size());
      tokens.push_back(joined);
      learned.push_back(joined);
    }
    for (auto& [word, count] : words) {
      std::vector<int> next;
      for (std::size_t i = 0; i < word.size(); ++i) {
        const bool here =
            i + 1 < word.size() && word[i] == best.first && word[i + 1] == best.second;
        next.push_back(here ? ids[joined] : word[i]);
        i += here;
      }
      word = next;
    }
  }
  return learned;
}

TEST(BpeTrain, LearnsWhatCountingAnewLearns) {
  std::vector<std::string> texts = {MakeText(3000, 8), RandomBytes(5000, 9),
                                    RandomNearUtf8(3001, 10)};
  // Few letters in long words: repeats that overlap, and tokens reached in two ways.
  RandomStream random(11);
  texts.emplace_back();
  for (int i = 0; i < 4000; ++i) texts.back() += "aab b"[random.Below(5)];
  texts.push_back(std::string(1000, 'a'));
  for (const std::string& text : texts) {
    std::vector<std::string> expected = LearnSlowly(text, 300);
    expected.emplace_back(kEndOfText);
    EXPECT_EQ(Learned(Train({text}, {.vocabulary_size = 557})), expected);
  }
}

TEST(BpeTrain, ReportsProgress) {
  std::int32_t last = 0;
  const std::string text = MakeText(20000, 1);
  const Tokenizer tokenizer = Train(
      {text}, {.vocabulary_size = 500, .progress = [&](std::int32_t done, std::int32_t wanted) {
                 EXPECT_EQ(wanted, 500);
                 EXPECT_GE(done, last);
                 last = done;
               }});
  EXPECT_EQ(last, tokenizer.vocabulary_size());
}

TEST(BpeTrain, RefusesImpossibleSizes) {
  for (const std::int32_t size : {-1, 0, 256, kMaxVocabulary + 1}) {
    EXPECT_THAT([&] { Train({"a"}, {.vocabulary_size = size}); },
                ThrowsMessage<Error>(HasSubstr(std::to_string(size))));
  }
}

}  // namespace
}  // namespace clearhead
