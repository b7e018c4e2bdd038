// SPDX-License-Identifier: MIT
#include "features/feature_search.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "core/threads.h"

namespace clearhead {
namespace {

// ASCII alone: other letters are found as they are written.
std::string Folded(std::string_view text) {
  std::string folded(text);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return folded;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

enum class Match : std::uint8_t { kNone, kPart, kWhole };

Match MatchIn(std::string_view folded, std::string_view needle) {
  if (folded.find(needle) == std::string_view::npos) return Match::kNone;
  return Trimmed(folded) == needle ? Match::kWhole : Match::kPart;
}

class Search {
 public:
  Search(const FeatureIndex& index, const Tokenizer& tokenizer, std::string needle)
      : index_(index), needle_(std::move(needle)) {
    for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      texts_.push_back(Folded(tokenizer.TokenBytes(id)));
      matches_.push_back(MatchIn(texts_.back(), needle_));
    }
  }

  std::optional<FoundFeature> Find(FeatureId id) const {
    const FeatureFacts facts = index_.Read(id);
    Match best = Match::kNone;
    for (const LabelPattern& pattern : facts.label.patterns) {
      best = std::max(best,
                      MatchIn(Joined(std::span(pattern.pattern.tokens)
                                         .first(static_cast<std::size_t>(pattern.pattern.length))),
                              needle_));
    }
    if (best != Match::kNone) return Found(id, FoundIn::kLabel, best);
    if (best = In(facts.tokens.promoted); best != Match::kNone) {
      return Found(id, FoundIn::kPromoted, best);
    }
    if (best = In(facts.tokens.exciting); best != Match::kNone) {
      return Found(id, FoundIn::kExciting, best);
    }
    for (const FeatureExample& example : facts.examples) {
      if (MatchIn(Joined(example.tokens), needle_) != Match::kNone) {
        return Found(id, FoundIn::kExample, Match::kPart);
      }
    }
    return {};
  }

 private:
  static FoundFeature Found(FeatureId id, FoundIn where, Match match) {
    return {id, where, match == Match::kWhole};
  }

  Match In(const TokenList& list) const {
    Match best = Match::kNone;
    for (const TokenScore& score : list) {
      const auto id = static_cast<std::size_t>(score.token);
      if (id < matches_.size()) best = std::max(best, matches_[id]);
    }
    return best;
  }

  std::string Joined(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) {
      if (static_cast<std::size_t>(id) < texts_.size())
        text += texts_[static_cast<std::size_t>(id)];
    }
    return text;
  }

  const FeatureIndex& index_;
  std::string needle_;
  std::vector<std::string> texts_;  // of tokens
  std::vector<Match> matches_;
};

}  // namespace

std::string_view NameOf(FoundIn place) {
  constexpr std::array<std::string_view, 4> kNames = {"label", "promoted", "exciting", "example"};
  return kNames[static_cast<std::size_t>(place)];
}

FoundFeatures SearchFeatures(const FeatureIndex& index, const Tokenizer& tokenizer,
                             std::string_view text, std::int64_t most) {
  FoundFeatures result;
  const std::string needle(Trimmed(Folded(text)));
  if (needle.empty()) return result;
  const Search search(index, tokenizer, needle);
  const std::int64_t F = index.info().features, all = F * index.info().layers;
  std::vector<std::optional<FoundFeature>> found(static_cast<std::size_t>(all));
  constexpr std::int64_t kShare = 256;
  ParallelFor((all + kShare - 1) / kShare, [&](std::int64_t share) {
    for (std::int64_t i = share * kShare; i < std::min(all, (share + 1) * kShare); ++i) {
      found[static_cast<std::size_t>(i)] = search.Find({i / F, i % F});
    }
  });
  for (const std::optional<FoundFeature>& feature : found) {
    if (feature) result.features.push_back(*feature);
  }
  result.total = static_cast<std::int64_t>(result.features.size());
  std::stable_sort(result.features.begin(), result.features.end(),
                   [&](const FoundFeature& a, const FoundFeature& b) {
                     if (a.where != b.where) return a.where < b.where;
                     if (a.whole != b.whole) return a.whole;
                     return index.Fired(a.id) > index.Fired(b.id);
                   });
  if (result.total > most) result.features.resize(static_cast<std::size_t>(most));
  return result;
}

}  // namespace clearhead
