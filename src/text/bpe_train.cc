// SPDX-License-Identifier: MIT
#include "text/bpe_train.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "text/byte_map.h"
#include "text/pretokenize.h"
#include "text/vocabulary.h"

namespace clearhead {
namespace {

struct Pair {
  std::int32_t left;
  std::int32_t right;
  auto operator<=>(const Pair&) const = default;
};

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    return Mix64(static_cast<std::uint64_t>(pair.left) << 32 |
                 static_cast<std::uint32_t>(pair.right));
  }
};

// A distinct word as its tokens so far.
struct Word {
  std::vector<std::int32_t> tokens;
  std::int64_t count;
};

// All distinct words, in the order of their first appearance.
std::vector<Word> CountWords(std::span<const std::string_view> texts,
                             const std::array<std::int32_t, 256>& byte_ids) {
  std::unordered_map<std::string_view, std::size_t> index;
  std::vector<Word> words;
  const Pretokenizer pretokenizer;
  Pretokenizer::Splitter splitter(pretokenizer);
  const auto add_document = [&](std::string_view document) {
    splitter.Start(document);
    std::string_view word;
    while (splitter.Next(&word)) {
      const auto [place, is_new] = index.try_emplace(word, words.size());
      if (is_new) {
        words.push_back({{}, 0});
        for (const char c : word) {
          words.back().tokens.push_back(byte_ids[static_cast<unsigned char>(c)]);
        }
      }
      ++words[place->second].count;
    }
  };
  for (std::string_view rest : texts) {
    for (std::size_t end; (end = rest.find(kEndOfText)) != std::string_view::npos;) {
      add_document(rest.substr(0, end));
      rest.remove_prefix(end + kEndOfText.size());
    }
    add_document(rest);
  }
  return words;
}

// How often every pair occurs in the words, and where; kept up to date by each merge.
class PairCounts {
 public:
  explicit PairCounts(std::vector<Word> words) : words_(std::move(words)) {
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::int32_t>& tokens = words_[w].tokens;
      for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
        Increase({tokens[i], tokens[i + 1]}, w);
      }
    }
    PushIncreased();
  }

  struct Best {
    Pair pair;
    std::int64_t count;  // 0: no pairs are left
  };

  Best MostFrequent() {
    while (!queue_.empty()) {
      const Candidate top = queue_.top();
      const auto found = pairs_.find(top.pair);
      const std::int64_t count = found == pairs_.end() ? 0 : found->second.count;
      if (count == top.count) return {top.pair, count};
      // The pair became rarer since it was queued.
      queue_.pop();
      if (count > 0) queue_.push({count, top.pair});
    }
    return {{-1, -1}, 0};
  }

  // Joins every occurrence of the pair, in each word from the left.
  void Join(const Pair& pair, std::int32_t result) {
    const std::vector<std::uint32_t> places = std::move(pairs_[pair].words);
    for (const std::uint32_t w : places) JoinInWord(w, pair, result);
    pairs_.erase(pair);
    PushIncreased();
  }

 private:
  struct Count {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words;  // where the pair is, or was
    bool increased = false;
  };
  struct Candidate {
    std::int64_t count;
    Pair pair;
    // std::priority_queue gives the largest: the most frequent, then the smallest pair.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void Increase(const Pair& pair, std::uint32_t w) {
    Count& entry = pairs_[pair];
    entry.count += words_[w].count;
    if (entry.words.empty() || entry.words.back() != w) entry.words.push_back(w);
    if (!std::exchange(entry.increased, true)) increased_.push_back(pair);
  }

  void Decrease(const Pair& pair, std::uint32_t w) { pairs_[pair].count -= words_[w].count; }

  void JoinInWord(std::uint32_t w, const Pair& pair, std::int32_t result) {
    std::vector<std::int32_t>& tokens = words_[w].tokens;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i, ++kept) {
      if (i + 1 == tokens.size() || tokens[i] != pair.left || tokens[i + 1] != pair.right) {
        tokens[kept] = tokens[i];
        continue;
      }
      Decrease(pair, w);
      if (kept > 0) {
        Decrease({tokens[kept - 1], pair.left}, w);
        Increase({tokens[kept - 1], result}, w);
      }
      if (i + 2 < tokens.size()) {
        Decrease({pair.right, tokens[i + 2]}, w);
        Increase({result, tokens[i + 2]}, w);
      }
      tokens[kept] = result;
      ++i;
    }
    tokens.resize(kept);
  }

  void PushIncreased() {
    for (const Pair& pair : increased_) {
      const auto found = pairs_.find(pair);
      if (found == pairs_.end()) continue;
      found->second.increased = false;
      if (found->second.count > 0) queue_.push({found->second.count, pair});
    }
    increased_.clear();
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Count, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> increased_;
};

}  // namespace

Tokenizer TrainBpe(std::span<const std::string_view> texts, const BpeTraining& training) {
  constexpr std::int32_t kSmallest = 256 + 1;
  constexpr std::int32_t kReportEvery = 64;
  const std::int32_t wanted = training.vocabulary_size;
  if (wanted < kSmallest || wanted > kMaxVocabulary) {
    Fail("cannot learn a vocabulary of {} tokens: expected {} (the bytes and {}) to {}", wanted,
         kSmallest, kEndOfText, kMaxVocabulary);
  }
  Vocabulary vocabulary;
  TokenTable& tokens = vocabulary.tokens;
  for (const unsigned char byte : BytesInSymbolOrder()) {
    const char c = static_cast<char>(byte);
    tokens.Add(std::string_view(&c, 1));
  }
  PairCounts pairs(CountWords(texts, FindByteTokens(tokens, "training")));
  std::unordered_set<Pair, PairHash> joined_before;
  while (tokens.size() + 1 < wanted) {
    const auto [pair, count] = pairs.MostFrequent();
    if (count < std::max<std::int64_t>(training.minimum_count, 1)) break;
    const std::string joined =
        std::string(tokens.Bytes(pair.left)).append(tokens.Bytes(pair.right));
    // The same bytes may come about in two ways ("a"+"bc", "ab"+"c"): two merges, one token. Which
    // also brings back pairs with that token that were joined long ago: no second merge for them.
    std::int32_t result = tokens.size();
    if (const auto known = tokens.Find(joined)) {
      result = *known;
    } else {
      tokens.Add(joined);
    }
    if (joined_before.insert(pair).second) {
      vocabulary.merges.push_back({pair.left, pair.right, result});
    }
    pairs.Join(pair, result);
    if (training.progress && tokens.size() % kReportEvery == 0) {
      training.progress(tokens.size() + 1, wanted);
    }
  }
  // Words never hold the separator, so no merge can have made it.
  vocabulary.added.push_back({std::string(kEndOfText), tokens.size(), true});
  tokens.Add(kEndOfText);
  if (training.progress) training.progress(tokens.size(), wanted);
  return Tokenizer(std::move(vocabulary));
}

}  // namespace clearhead
