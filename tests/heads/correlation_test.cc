// SPDX-License-Identifier: MIT
#include "heads/correlation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"

namespace clearhead {
namespace {

TEST(Correlation, KnownValues) {
  // Worked by hand: means 2.5 and 2.75, sums of products 5, 5 and 4.75 - 0.25 ... ranks with a tie.
  const std::vector<float> x = {1, 2, 3, 4}, y = {1, 3, 2, 5}, tied = {1, 1, 2, 2};
  EXPECT_NEAR(*Pearson(x, y), 5.5 / std::sqrt(5.0 * 8.75), 1e-12);
  EXPECT_NEAR(*Spearman(x, y), 0.8, 1e-12);
  EXPECT_NEAR(*Spearman(x, tied), 4.0 / std::sqrt(5.0 * 4.0), 1e-12);
  EXPECT_EQ(Ranks(tied), (std::vector<float>{1.5f, 1.5f, 3.5f, 3.5f}));
  EXPECT_DOUBLE_EQ(*Pearson(x, std::vector<float>{4, 3, 2, 1}), -1.0);
  EXPECT_DOUBLE_EQ(*Spearman(x, std::vector<float>{1, 10, 100, 1000}), 1.0);
}

TEST(Correlation, UndefinedIsNotZero) {
  const std::vector<float> x = {1, 2, 3}, constant = {0, 0, 0};
  EXPECT_FALSE(Pearson(x, constant));
  EXPECT_FALSE(Spearman(constant, x));
  EXPECT_FALSE(Pearson(std::vector<float>{1}, std::vector<float>{2}));
}

PairWeights MadePairs(std::int64_t length, std::size_t heads, std::uint64_t seed) {
  PairWeights pairs{.length = length, .pairs = length * (length + 1) / 2 - 1};
  pairs.weights = Buffer<float>(static_cast<std::int64_t>(heads) * pairs.pairs);
  RandomStream random(seed);
  for (std::size_t h = 0; h < heads; ++h) {
    pairs.heads.push_back({static_cast<std::int64_t>(h) / 4, static_cast<std::int64_t>(h) % 4});
  }
  std::vector<double> common;
  for (std::int64_t p = 0; p < pairs.pairs; ++p) common.push_back(random.Uniform());
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::int64_t p = 0; p < pairs.pairs; ++p) {
      // Odd heads share something; the last is empty.
      const double own = random.Uniform();
      const double value = h + 1 == heads ? 0
                           : h % 2 == 1   ? 0.8 * common[static_cast<std::size_t>(p)] + 0.2 * own
                                          : own;
      pairs.weights[static_cast<std::int64_t>(h) * pairs.pairs + p] = static_cast<float>(value);
    }
  }
  return pairs;
}

TEST(Correlation, MatrixEqualsThePairs) {
  PairWeights pairs = MadePairs(100, 8, 3);
  const PairWeights copy = MadePairs(100, 8, 3);
  const CorrelationMatrix matrix = Correlate(&pairs, "m");
  ASSERT_EQ(matrix.heads.size(), 8u);
  EXPECT_EQ(matrix.defined_heads, 7);
  EXPECT_EQ(matrix.heads.back(), (HeadId{1, 3}));  // the empty one, last
  std::vector<double> magnitudes;
  double above = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      const auto place = [&](HeadId id) {
        return static_cast<std::size_t>(id.layer * 4 + id.head);
      };
      const auto expected =
          Pearson(copy.Of(place(matrix.heads[i])), copy.Of(place(matrix.heads[j])));
      ASSERT_EQ(expected.has_value(), matrix.r[i * 8 + j].has_value());
      if (!expected) continue;
      EXPECT_NEAR(*matrix.r[i * 8 + j], *expected, 1e-5);
      if (j < i) {
        magnitudes.push_back(std::abs(*expected));
        above += std::abs(*expected) > 0.5;
      }
    }
  }
  std::sort(magnitudes.begin(), magnitudes.end());
  ASSERT_EQ(magnitudes.size(), 21u);
  EXPECT_NEAR(*matrix.median_magnitude, magnitudes[10], 1e-5);
  EXPECT_NEAR(matrix.share_above_half, above / 21, 1e-12);
  EXPECT_EQ(above, 3);  // heads 1, 3, 5
  EXPECT_NEAR(std::abs(matrix.strongest[0].r), magnitudes.back(), 1e-5);
  EXPECT_EQ(matrix.strongest.size(), 10u);
  // The related heads are neighbours.
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < 8; ++i) {
    if (matrix.heads[i].head % 2 == 1 && matrix.heads[i] != (HeadId{1, 3})) places.push_back(i);
  }
  EXPECT_EQ(places.back() - places.front(), 2u);
}

TEST(Correlation, ClusterOrderFindsBlocks) {
  // Three groups, shuffled: members 0.9 alike, others 0.1 or less.
  constexpr std::size_t n = 15;
  std::vector<double> similarity(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      similarity[i * n + j] = i == j           ? 1
                              : i % 3 == j % 3 ? 0.9
                                               : 0.1 - 0.05 * static_cast<double>((i + j) % 3);
    }
  }
  const std::vector<std::size_t> order = ClusterOrder(similarity, n);
  std::vector<std::size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  EXPECT_EQ(sorted, all);
  int changes = 0;
  for (std::size_t i = 1; i < n; ++i) changes += order[i] % 3 != order[i - 1] % 3;
  EXPECT_EQ(changes, 2);
  EXPECT_EQ(ClusterOrder(std::vector<double>{1}, 1), std::vector<std::size_t>{0});
  EXPECT_TRUE(ClusterOrder({}, 0).empty());
}

TEST(Correlation, CollectsTheSamePairsOfEveryHead) {
  AttentionSource source{.layers = 2, .heads = 2, .sequences = {{3, {}}}};
  source.visit = [](std::size_t, const LayerVisitor& visitor) {
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<float> maps;
      for (int i = 0; i < 2 * 9; ++i) maps.push_back(static_cast<float>(100 * layer + i));
      visitor(layer, maps.data());
    }
  };
  const PairWeights pairs = CollectPairs(source, 0, {{1, 1}, {0, 0}});
  EXPECT_EQ(pairs.pairs, 5);
  const std::vector<float> first(pairs.Of(0).begin(), pairs.Of(0).end());
  const std::vector<float> second(pairs.Of(1).begin(), pairs.Of(1).end());
  EXPECT_EQ(first, (std::vector<float>{112, 113, 115, 116, 117}));
  EXPECT_EQ(second, (std::vector<float>{3, 4, 6, 7, 8}));
}

TEST(Scatter, PointsForFewPairsCountsForMany) {
  for (const std::int64_t length : {20, 100}) {
    const PairWeights pairs = MadePairs(length, 5, 4);
    const ScatterSection section = Scatter(pairs, "s");
    const bool many = pairs.pairs > ScatterSection::kMaxPoints;
    EXPECT_EQ(section.points.empty(), many);
    for (std::size_t y = 0; y < 5; ++y) {
      EXPECT_EQ(std::accumulate(section.histograms[y].begin(), section.histograms[y].end(),
                                std::int64_t{0}),
                pairs.pairs);
      for (std::size_t x = 0; x < 5; ++x) {
        const ScatterCell& cell = section.Cell(y, x);
        EXPECT_EQ(cell.pearson, Pearson(pairs.Of(x), pairs.Of(y)));
        EXPECT_EQ(cell.spearman, Spearman(pairs.Of(x), pairs.Of(y)));
        EXPECT_EQ(cell.pearson.has_value(), x != 4 && y != 4);
        if (!many || x == y) continue;
        EXPECT_EQ(std::accumulate(cell.counts.begin(), cell.counts.end(), std::int64_t{0}),
                  pairs.pairs);
      }
    }
    EXPECT_EQ(section.largest[4], 0);
  }
}

}  // namespace
}  // namespace clearhead
