// SPDX-License-Identifier: MIT
#include "features/feature_labels.h"

#include <algorithm>
#include <cmath>

namespace clearhead {
namespace {

// A pattern is believed to make a feature fire if it did so on this share of its places, with one
// hit and one miss added to each: four of four are not yet enough, five of five are.
constexpr double kReliable = 0.85;

double Believed(const LabelPattern& label) {
  return static_cast<double>(label.fired + 1) / static_cast<double>(label.seen + 2);
}

struct Counted {
  TokenPattern pattern;
  std::int64_t count = 0;  // of the sampled places
  double fired = 0.0;      // of all places, as the sample has it
  double at_least = 0.0;   // of all places, one standard deviation of the sampling less
  std::int64_t seen = 0;
};

// How good a description of `share` of the feature's places is that is right with `precision`: the
// harmonic mean in which precision counts double (F with beta one half).
double Description(const Counted& c, double samples) {
  const double precision = c.at_least / (static_cast<double>(c.seen) + 1.0);
  const double share = static_cast<double>(c.count) / samples;
  return precision + share > 0.0 ? 1.25 * precision * share / (0.25 * precision + share) : 0.0;
}

// How surely it makes the feature fire, however few of its places it describes.
double Sureness(const Counted& c) { return c.at_least / (static_cast<double>(c.seen) + 3.0); }

// Every run of tokens that ends at a sampled place, with the number of places.
std::vector<Counted> PatternsOf(const FeatureTally& tally, const WindowedText& text) {
  std::vector<TokenPattern> all;
  for (std::int32_t s = 0; s < tally.places; ++s) {
    const std::int64_t position = tally.place[static_cast<std::size_t>(s)].position;
    for (int length = 1; length <= kPatternTokens; ++length) {
      const TokenPattern pattern = PatternAt(text, position, length);
      if (pattern.length == length) all.push_back(pattern);
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<Counted> patterns;
  for (const TokenPattern& pattern : all) {
    if (patterns.empty() || patterns.back().pattern != pattern) patterns.push_back({pattern});
    ++patterns.back().count;
  }
  return patterns;
}

const Counted& CommonestToken(const std::vector<Counted>& patterns) {
  const Counted* commonest = nullptr;
  for (const Counted& counted : patterns) {
    if (counted.pattern.length != 1) continue;
    if (commonest == nullptr || counted.count > commonest->count) commonest = &counted;
  }
  return *commonest;
}

// The share of a candidate's places in both halves; a few misses are added, so that what was seen
// once or twice does not beat what is known.
double InBoth(const LabelCandidate& candidate) {
  return (double{candidate.proposed_fired} + candidate.label.fired) /
         (static_cast<double>(candidate.label.seen) + candidate.proposed_seen + 5.0);
}

// Silent in the proposing half, so nothing was proposed: the judging half has all its places, and
// the sample, if they are few, all of them too.
FeatureLabel SilentAtFirst(const FeatureTally& tally, const WindowedText& text,
                           const SuffixCounts& counts) {
  const std::vector<Counted> patterns = PatternsOf(tally, text);
  const Counted& commonest = CommonestToken(patterns);
  LabelPattern label{.pattern = commonest.pattern};
  if (tally.fired == tally.places) {
    label.seen = static_cast<std::uint32_t>(counts.Count(commonest.pattern));
    // No more than seen: a text of one group has no judging half.
    label.fired = std::min(static_cast<std::uint32_t>(commonest.count), label.seen);
  }
  return {.kind = LabelKind::kMostly, .patterns = {label}};
}

}  // namespace

std::string_view NameOf(LabelKind kind) {
  switch (kind) {
    case LabelKind::kNone:
      return "none";
    case LabelKind::kFires:
      return "fires";
    case LabelKind::kSometimes:
      return "sometimes";
    case LabelKind::kMostly:
      break;
  }
  return "mostly";
}

std::int64_t FeatureLabel::fired() const {
  std::int64_t sum = 0;
  for (const LabelPattern& label : patterns) sum += label.fired;
  return sum;
}

std::int64_t FeatureLabel::seen() const {
  std::int64_t sum = 0;
  for (const LabelPattern& label : patterns) sum += label.seen;
  return sum;
}

LabelCandidates ProposeLabels(const FeatureTally& tally, std::span<const std::int32_t> exciting,
                              const WindowedText& text, const SuffixCounts& counts) {
  LabelCandidates labels;
  if (tally.fired == 0) return labels;
  std::vector<Counted> patterns = PatternsOf(tally, text);
  const double sampled = static_cast<double>(tally.places) / static_cast<double>(tally.fired);
  for (Counted& counted : patterns) {
    counted.seen = counts.Count(counted.pattern);
    const auto count = static_cast<double>(counted.count), seen = static_cast<double>(counted.seen);
    counted.fired = std::min(count / sampled, seen);
    counted.at_least =
        std::min(std::max(0.0, count - std::sqrt(count * (1.0 - sampled))) / sampled, seen);
  }
  const auto is_exciting = [&](const TokenPattern& pattern) {
    return pattern.length == 1 &&
           std::find(exciting.begin(), exciting.end(), pattern.tokens[0]) != exciting.end();
  };
  const auto add = [&](const Counted& counted) {
    const auto end = labels.candidates.begin() + labels.count;
    const bool known = std::any_of(labels.candidates.begin(), end, [&](const auto& other) {
      return other.label.pattern == counted.pattern;
    });
    if (known || labels.count == kLabelCandidates) return;
    *end = {.label = {.pattern = counted.pattern, .from_embedding = is_exciting(counted.pattern)},
            .proposed_fired = static_cast<float>(counted.fired),
            .proposed_seen = static_cast<std::uint32_t>(counted.seen)};
    ++labels.count;
  };
  add(CommonestToken(patterns));
  for (const std::int32_t token : exciting) {
    Counted counted{.pattern = {.length = 1}};
    counted.pattern.tokens[0] = token;
    counted.seen = counts.Count(counted.pattern);
    const auto sampled = std::find_if(patterns.begin(), patterns.end(), [&](const Counted& other) {
      return other.pattern == counted.pattern;
    });
    if (sampled != patterns.end()) counted = *sampled;
    if (labels.count <= kLabelEmbeddings && counted.seen > 0) add(counted);
  }
  // One that describes much, one that is sure, in turn.
  const auto samples = static_cast<double>(tally.places);
  std::vector<Counted> sure = patterns;
  std::stable_sort(patterns.begin(), patterns.end(), [&](const Counted& a, const Counted& b) {
    return Description(a, samples) > Description(b, samples);
  });
  std::stable_sort(sure.begin(), sure.end(), [](const Counted& a, const Counted& b) {
    return Sureness(a) != Sureness(b) ? Sureness(a) > Sureness(b) : a.count > b.count;
  });
  for (std::size_t i = 0; i < patterns.size() && labels.count < kLabelCandidates; ++i) {
    add(patterns[i]);
    add(sure[i]);
  }
  return labels;
}

FeatureLabel ChooseLabel(const FeatureTally& tally, const LabelCandidates& labels,
                         const WindowedText& text, const SuffixCounts& counts) {
  FeatureLabel label;
  if (tally.fired == 0) return label;
  if (labels.count == 0) return SilentAtFirst(tally, text, counts);
  std::vector<LabelCandidate> judged(labels.candidates.begin(),
                                     labels.candidates.begin() + labels.count);
  for (LabelCandidate& candidate : judged) {
    candidate.label.seen = static_cast<std::uint32_t>(counts.Count(candidate.label.pattern));
  }
  // What explains most of the feature comes first; a token before a longer run.
  std::vector<LabelPattern> reliable;
  for (const LabelCandidate& candidate : judged) {
    if (Believed(candidate.label) >= kReliable) reliable.push_back(candidate.label);
  }
  std::stable_sort(
      reliable.begin(), reliable.end(), [](const LabelPattern& a, const LabelPattern& b) {
        return a.fired != b.fired ? a.fired > b.fired : a.pattern.length < b.pattern.length;
      });
  for (const LabelPattern& candidate : reliable) {
    const bool told =
        std::any_of(label.patterns.begin(), label.patterns.end(), [&](const LabelPattern& other) {
          return IsSuffix(other.pattern, candidate.pattern) ||
                 IsSuffix(candidate.pattern, other.pattern);
        });
    if (!told && label.patterns.size() < kLabelPatterns) label.patterns.push_back(candidate);
  }
  if (!label.patterns.empty()) {
    label.kind = LabelKind::kFires;
    return label;
  }
  const LabelCandidate* best = nullptr;
  for (const LabelCandidate& candidate : judged) {
    if (candidate.label.fired > 0 && (best == nullptr || InBoth(candidate) > InBoth(*best))) {
      best = &candidate;
    }
  }
  label.kind = best == nullptr ? LabelKind::kMostly : LabelKind::kSometimes;
  label.patterns.push_back(best == nullptr ? judged[0].label : best->label);
  return label;
}

}  // namespace clearhead
