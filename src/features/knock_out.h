// SPDX-License-Identifier: MIT
// Runs in which attention weights at one (query, key) of chosen heads are 0, to check by
// intervention what a split into heads says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/attribution_graph.h"

namespace clearhead {

// What is measured: a logit, or a sum of features' pre-activations.
struct MeasuredTarget {
  std::optional<LogitTarget> logit = {};
  std::vector<ActiveFeature> features = {};
};

enum class KnockOutMode {
  kFrozen,     // attention, norms' divisors and MLP outputs as they were: what the graph says
  kAttention,  // other attention weights as they were, norms and MLPs anew
  kFree,       // everything anew
};

// Heads are numbers layer * H + head. Without heads: the target as it is.
double MeasureKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                       std::span<const std::int64_t> heads, std::int64_t query, std::int64_t key,
                       KnockOutMode mode);

// Of many sets of heads: they run side by side, so that the weights are read once for all.
std::vector<double> MeasureKnockOuts(const FrozenPrompt& prompt, const MeasuredTarget& target,
                                     std::span<const std::vector<std::int64_t>> sets,
                                     std::int64_t query, std::int64_t key, KnockOutMode mode);

// By how much the target falls when the cells of these heads are closed, as a share of how much it
// falls when those of all heads are; and the same for random sets of as many heads.
struct KnockOutShare {
  double before = 0.0, without_all = 0.0, without_set = 0.0;
  double share = 0.0;                                // of the effect that the set removes
  double random_mean = 0.0, random_deviation = 0.0;  // of the random sets' shares
  double random_largest = 0.0;
};
KnockOutShare CheckByKnockOut(const FrozenPrompt& prompt, const MeasuredTarget& target,
                              std::span<const std::int64_t> heads, std::int64_t query,
                              std::int64_t key, KnockOutMode mode, std::int64_t random_sets,
                              std::uint64_t seed);

}  // namespace clearhead
