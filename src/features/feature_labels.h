// SPDX-License-Identifier: MIT
// Labels without a language model: short runs of tokens that make a feature fire. Half of the
// windows proposes them, the other half judges: a share that is told was counted on text that had
// no part in the choice of the candidates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "features/feature_tally.h"
#include "features/suffix_counts.h"

namespace clearhead {

inline constexpr int kLabelCandidates = 64;  // of which at most
inline constexpr int kLabelEmbeddings = 4;   // come from the weights
inline constexpr int kLabelPatterns = 3;     // that a label has at most

// What a label's patterns are worth. Of the places where they end, the judging half of the text
// had `seen`, and the feature fired on `fired` of them.
struct LabelPattern {
  TokenPattern pattern;
  bool from_embedding = false;  // its embedding is among those that excite the feature most
  std::uint32_t fired = 0, seen = 0;
};

enum class LabelKind : std::uint8_t {
  kNone,       // never fires
  kFires,      // its patterns make the feature fire reliably
  kSometimes,  // none does: the one that does so most, in both halves of the text
  kMostly,     // none recurs: the token on which it fires most often
};
inline constexpr int kLabelKinds = 4;
std::string_view NameOf(LabelKind kind);  // "none", "fires", "sometimes", "mostly"

struct FeatureLabel {
  LabelKind kind = LabelKind::kNone;
  std::vector<LabelPattern> patterns;

  std::int64_t fired() const;
  std::int64_t seen() const;
};

// A pattern that may describe a feature.
struct LabelCandidate {
  LabelPattern label;               // `fired` counts while the judging half passes by
  float proposed_fired = 0.0f;      // in the proposing half, as the sample has it
  std::uint32_t proposed_seen = 0;  // there
};

struct LabelCandidates {
  std::int32_t count = 0;
  std::array<LabelCandidate, kLabelCandidates> candidates = {};
};

// From what a feature did in the proposing half, of which `counts` are: the token on which it fires
// most often (the first), tokens that excite it by their embeddings, what its places have in
// common.
LabelCandidates ProposeLabels(const FeatureTally& tally, std::span<const std::int32_t> exciting,
                              const WindowedText& text, const SuffixCounts& counts);

// The feature fired at `position`.
inline void CountLabels(const WindowedText& text, std::int64_t position, LabelCandidates* labels) {
  for (std::int32_t c = 0; c < labels->count; ++c) {
    LabelPattern& label = labels->candidates[static_cast<std::size_t>(c)].label;
    if (EndsAt(label.pattern, text, position)) ++label.fired;
  }
}

// `counts` are of the judging half.
FeatureLabel ChooseLabel(const FeatureTally& tally, const LabelCandidates& labels,
                         const WindowedText& text, const SuffixCounts& counts);

}  // namespace clearhead
