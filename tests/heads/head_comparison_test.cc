// SPDX-License-Identifier: MIT
#include "heads/head_comparison.h"

#include <gtest/gtest.h>

#include <numeric>

#include "heads/permutation.h"
#include "heads/synthetic_heads.h"

namespace clearhead {
namespace {

TEST(Permutation, SignFlipsAreExactForFewPairs) {
  // All of one sign: only the two constant sign vectors are as far out.
  for (const std::size_t n : {2u, 5u, 13u}) {
    const std::vector<double> differences(n, 0.3);
    EXPECT_DOUBLE_EQ(*SignFlipPValue(differences, 1), 2 / std::pow(2.0, static_cast<double>(n)));
  }
  EXPECT_DOUBLE_EQ(*SignFlipPValue(std::vector<double>{1, -1}, 1), 1.0);
  EXPECT_DOUBLE_EQ(*SignFlipPValue(std::vector<double>{0, 0, 0}, 1), 1.0);
  // |sum| of +-1 +-2 +-4 reaches 5 for 5 and 7 and their opposites: 4 of 8.
  EXPECT_DOUBLE_EQ(*SignFlipPValue(std::vector<double>{-1, 2, 4}, 1), 0.5);
  EXPECT_FALSE(SignFlipPValue(std::vector<double>{1}, 1));
  EXPECT_FALSE(SignFlipPValue({}, 1));
}

TEST(Permutation, SampledPValuesAreUniformWithoutADifference) {
  int below_5 = 0, below_50 = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    RandomStream random(static_cast<std::uint64_t>(trial));
    std::vector<double> a, b;
    for (int i = 0; i < 20; ++i) a.push_back(random.Normal());
    for (int i = 0; i < 15; ++i) b.push_back(random.Normal());
    const double p = trial % 2 == 0 ? *SignFlipPValue(a, 9) : *TwoSamplePValue(a, b, 9);
    below_5 += p < 0.05;
    below_50 += p < 0.5;
  }
  // Binomial(200, 0.05) and (200, 0.5), four deviations.
  EXPECT_LE(below_5, 10 + 13);
  EXPECT_NEAR(below_50, 100, 29);
}

TEST(Permutation, SampledPValuesFindADifference) {
  std::vector<double> a(30), b(40);
  RandomStream random(4);
  for (double& x : a) x = random.Normal() + 2;
  for (double& x : b) x = random.Normal();
  EXPECT_DOUBLE_EQ(*TwoSamplePValue(a, b, 1), 1e-4);
  EXPECT_DOUBLE_EQ(*SignFlipPValue(a, 1), 1e-4);
  EXPECT_EQ(TwoSamplePValue(a, b, 1), TwoSamplePValue(a, b, 1));
  EXPECT_FALSE(TwoSamplePValue(std::vector<double>{1}, b, 1));
}

// Sequences in which head h of layer l is of the kind that `kind` says, scaled.
AttentionSource MadeSource(std::int64_t layers, std::int64_t heads, int sequences,
                           const std::function<HeadKind(HeadId)>& kind, float scale) {
  AttentionSource source{.label = "made", .layers = layers, .heads = heads};
  constexpr std::int64_t kLength = 24;
  std::vector<std::int32_t> ids(kLength);
  std::iota(ids.begin(), ids.end(), 0);
  source.sequences.assign(static_cast<std::size_t>(sequences), {kLength, ids});
  source.visit = [=](std::size_t s, const LayerVisitor& visitor) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      std::vector<float> maps;
      for (std::int64_t head = 0; head < heads; ++head) {
        SyntheticHeads make(s * 100 + static_cast<std::size_t>(layer * heads + head));
        for (const float w : make.Make(kind({layer, head}), kLength, Spoil::kNoise).map) {
          maps.push_back(w * scale);
        }
      }
      visitor(layer, maps.data());
    }
  };
  return source;
}

TEST(Comparison, CountsWhatIsGone) {
  // Dense: sinks in layer 0, diagonals in layer 1. Sparse: the sinks are empty, the diagonals
  // halved.
  const auto dense = AnalyseHeads(MadeSource(
      2, 3, 6, [](HeadId id) { return id.layer == 0 ? HeadKind::kFirstToken : HeadKind::kSelf; },
      1));
  AttentionSource made = MadeSource(
      2, 3, 6, [](HeadId id) { return id.layer == 0 ? HeadKind::kFirstToken : HeadKind::kSelf; },
      0.5f);
  const auto visit = made.visit;
  made.visit = [visit](std::size_t s, const LayerVisitor& visitor) {
    visit(s, [&](std::int64_t layer, const float* weights) {
      std::vector<float> maps(weights, weights + 3 * 24 * 24);
      for (float& w : maps) w = layer == 0 || w < 0.3f ? 0.0f : w;
      visitor(layer, maps.data());
    });
  };
  const auto sparse = AnalyseHeads(made);
  const ModelComparison c = CompareModels(dense, sparse, 0);
  EXPECT_TRUE(c.paired);
  EXPECT_EQ(c.sinks_before, 3);
  EXPECT_EQ(c.sinks_after, 0);
  EXPECT_EQ(c.sinks_eliminated, 3);
  EXPECT_EQ(c.heads.size(), 6u);
  EXPECT_EQ(c.heads[0].before, HeadKind::kFirstToken);
  EXPECT_EQ(c.heads[0].after, HeadKind::kNearEmpty);
  EXPECT_EQ(c.heads[5].after, HeadKind::kSelf);
  // Dense keeps all 12.5 edges per query, sparse about one in half of its heads.
  EXPECT_DOUBLE_EQ(c.open_edges_per_query.before, 12.5);
  EXPECT_LT(c.open_edges_per_query.after, 0.6);
  EXPECT_NEAR(*c.connections_removed,
              100 * (1 - c.open_edges_per_query.after / c.open_edges_per_query.before), 1e-9);
  EXPECT_NEAR(*c.diagonal_intensity_lost, 50, 5);
  // Six heads, six sequences: exact tests.
  EXPECT_DOUBLE_EQ(*c.open_edges_per_query.p, 2 / 64.0);
  EXPECT_DOUBLE_EQ(*c.heads[0].first.p, 2 / 64.0);
  EXPECT_GT(*c.diagonal_dominant.p, 0.9);  // dominant before and after
}

TEST(Comparison, OtherShapesAndInputs) {
  const auto kind = [](HeadId) { return HeadKind::kPreviousToken; };
  const auto a = AnalyseHeads(MadeSource(2, 3, 2, kind, 1)),
             b = AnalyseHeads(MadeSource(3, 2, 3, kind, 1));
  const ModelComparison c = CompareModels(a, b, 0);
  EXPECT_FALSE(c.paired);
  EXPECT_EQ(c.heads.size(), 4u);
  EXPECT_FALSE(c.heads[0].self.p);  // other sequences: nothing to pair
  EXPECT_TRUE(c.open_edges_per_query.p);
  // Equal models: nothing changed, and no p-value claims it.
  const ModelComparison same = CompareModels(a, a, 0);
  EXPECT_EQ(*same.connections_removed, 0);
  EXPECT_EQ(*same.open_edges_per_query.p, 1);
  EXPECT_EQ(*same.heads[3].first.p, 1);
}

}  // namespace
}  // namespace clearhead
