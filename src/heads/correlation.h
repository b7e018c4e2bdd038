// SPDX-License-Identifier: MIT
// How heads relate: their weights on the same (query, key) pairs, all causal pairs of one sequence
// with a choosing query (i >= 1; the weight of query 0 is the same for every head).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "heads/attention_source.h"
#include "heads/head_id.h"

namespace clearhead {

// Weights of chosen heads, [heads, pairs], pairs in the order of queries and then keys.
struct PairWeights {
  std::vector<HeadId> heads;
  std::int64_t length = 0;  // T of the sequence
  std::int64_t pairs = 0;   // T(T+1)/2 - 1
  Buffer<float> weights;
  std::span<const float> Of(std::size_t head) const {
    return weights.span().subspan(head * static_cast<std::size_t>(pairs),
                                  static_cast<std::size_t>(pairs));
  }
};
PairWeights CollectPairs(const AttentionSource& source, std::size_t sequence,
                         const std::vector<HeadId>& heads);

// Nothing where a correlation is undefined: fewer than two values, or one side constant (an empty
// head, say).
std::optional<double> Pearson(std::span<const float> x, std::span<const float> y);
std::optional<double> Spearman(std::span<const float> x, std::span<const float> y);
// Ranks from 1 on; equal values share the mean of their ranks.
std::vector<float> Ranks(std::span<const float> values);

// For the scatter-plot matrix.
struct ScatterCell {
  std::optional<double> pearson, spearman;
  std::vector<std::int64_t> counts;  // [kBins y][kBins x] if the pairs are too many to draw singly
};
struct ScatterSection {
  std::string label;
  std::vector<HeadId> heads;
  std::int64_t length = 0, pairs = 0;
  std::vector<float> largest;                         // [heads] the end of each head's axis
  std::vector<std::vector<std::int64_t>> histograms;  // [heads][kBins] from 0 to largest
  std::vector<ScatterCell> cells;                     // [y][x]; x == y: r = 1 or undefined
  std::vector<std::vector<float>> points;             // [heads][pairs]; empty if binned

  static constexpr int kBins = 40;
  static constexpr std::int64_t kMaxPoints = 1500;
  const ScatterCell& Cell(std::size_t y, std::size_t x) const {
    return cells[y * heads.size() + x];
  }
};
ScatterSection Scatter(const PairWeights& pairs, std::string label);

// All heads against all heads.
struct CorrelatedPair {
  HeadId a, b;
  double r = 0;
};
struct CorrelationMatrix {
  std::string label;
  std::int64_t length = 0, pairs = 0;
  std::vector<HeadId> heads;               // in clustered order; undefined ones last
  std::vector<std::optional<double>> r;    // [heads, heads]
  std::int64_t defined_heads = 0;          // the others are constant: no correlation exists
  std::optional<double> median_magnitude;  // of |r| over pairs of different heads
  double share_above_half = 0;             // of those pairs, |r| > 0.5
  std::vector<CorrelatedPair> strongest;   // by |r|, at most kStrongest

  static constexpr std::size_t kStrongest = 10;
};
// Overwrites the weights of `pairs`, which may be hundreds of megabytes.
CorrelationMatrix Correlate(PairWeights* pairs, std::string label);

// An order of n items in which similar ones are neighbours: average-linkage clustering of the
// similarities [n,n], branches turned so that the ends that meet are the most similar.
std::vector<std::size_t> ClusterOrder(std::span<const double> similarity, std::size_t n);

}  // namespace clearhead
