// SPDX-License-Identifier: MIT
#include "kernels/gate_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/gated_attention.h"
#include "kernels/gated_attention_stages.h"

namespace clearhead {
namespace {

constexpr NoiseCoordinates kAt{.seed = 7, .step = 3, .first_sample = 11, .layer = 5};

// Chi-square of counts that should be equal, as a number of standard deviations from its mean.
double ChiSquareDeviation(const std::vector<std::int64_t>& counts) {
  double total = 0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  const double expected = total / static_cast<double>(counts.size());
  double chi_square = 0;
  for (const std::int64_t count : counts) {
    const double difference = static_cast<double>(count) - expected;
    chi_square += difference * difference / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

TEST(GateNoise, LiesStrictlyBetweenZeroAndOneWithExactComplement) {
  for (std::uint64_t query = 0; query < 200; ++query) {
    const NoiseRow row = HashNoiseRow(kAt, 0, 0, query);
    for (std::uint32_t key = 0; key < 500; ++key) {
      const float u = GateNoise(row, key);
      ASSERT_GT(u, 0.0f);
      ASSERT_LT(u, 1.0f);
      ASSERT_EQ(static_cast<double>(1.0f - u), 1.0 - static_cast<double>(u));
    }
  }
}

TEST(GateNoise, IsUniform) {
  std::vector<std::int64_t> coarse(64), fine(4096);
  for (std::uint64_t query = 0; query < 1024; ++query) {
    const NoiseRow row = HashNoiseRow(kAt, 0, 2, query);
    for (std::uint32_t key = 0; key < 1024; ++key) {
      const double u = GateNoise(row, key);
      ++coarse[static_cast<std::size_t>(u * 64)];
      ++fine[static_cast<std::size_t>(u * 4096)];
    }
  }
  EXPECT_LT(std::abs(ChiSquareDeviation(coarse)), 4.0);
  EXPECT_LT(std::abs(ChiSquareDeviation(fine)), 4.0);
}

TEST(GateNoise, EveryBitIsFairAndIndependentOfTheOthers) {
  std::vector<std::int64_t> ones(32);
  std::vector<std::int64_t> both(32 * 32);  // bits a and b equal
  std::int64_t total = 0;
  for (std::uint64_t query = 0; query < 256; ++query) {
    const NoiseRow row = HashNoiseRow(kAt, 1, 0, query);
    for (std::uint32_t key = 0; key < 1024; ++key, ++total) {
      const std::uint32_t bits = NoiseBits(row, key);
      for (std::size_t a = 0; a < 32; ++a) {
        ones[a] += bits >> a & 1;
        const std::uint32_t equal = ~(bits ^ (0u - (bits >> a & 1)));
        for (std::size_t b = 0; b < a; ++b) both[a * 32 + b] += equal >> b & 1;
      }
    }
  }
  const double half = static_cast<double>(total) / 2;
  const double deviation = std::sqrt(static_cast<double>(total)) / 2;
  for (std::size_t a = 0; a < 32; ++a) {
    EXPECT_LT(std::abs(static_cast<double>(ones[a]) - half), 5 * deviation) << "bit " << a;
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_LT(std::abs(static_cast<double>(both[a * 32 + b]) - half), 5 * deviation)
          << "bits " << a << " and " << b;
    }
  }
}

// Neighbours in every coordinate: correlation of u, and the joint distribution on a grid.
TEST(GateNoise, NeighboursAreIndependent) {
  const auto noise = [](std::uint64_t step, std::uint64_t sample, std::uint64_t layer,
                        std::uint64_t head, std::uint64_t query, std::uint32_t key) {
    NoiseCoordinates at = kAt;
    at.step += step;
    at.layer += layer;
    return static_cast<double>(GateNoise(HashNoiseRow(at, sample, head, query), key));
  };
  struct Neighbour {
    const char* name;
    std::uint64_t step, sample, layer, head, query;
    std::uint32_t key;
  };
  for (const Neighbour& n :
       {Neighbour{"key", 0, 0, 0, 0, 0, 1}, Neighbour{"key+2", 0, 0, 0, 0, 0, 2},
        Neighbour{"key+8", 0, 0, 0, 0, 0, 8}, Neighbour{"key+64", 0, 0, 0, 0, 0, 64},
        Neighbour{"query", 0, 0, 0, 0, 1, 0}, Neighbour{"diagonal", 0, 0, 0, 0, 1, 1},
        Neighbour{"head", 0, 0, 0, 1, 0, 0}, Neighbour{"layer", 0, 0, 1, 0, 0, 0},
        Neighbour{"sample", 0, 1, 0, 0, 0, 0}, Neighbour{"step", 1, 0, 0, 0, 0, 0}}) {
    double product = 0;
    std::int64_t total = 0;
    std::vector<std::int64_t> grid(16 * 16);
    for (std::uint64_t query = 0; query < 300; ++query) {
      for (std::uint32_t key = 0; key < 600; ++key, ++total) {
        const double a = noise(0, 0, 0, 0, query, key);
        const double b = noise(n.step, n.sample, n.layer, n.head, query + n.query, key + n.key);
        product += (a - 0.5) * (b - 0.5);
        ++grid[static_cast<std::size_t>(a * 16) * 16 + static_cast<std::size_t>(b * 16)];
      }
    }
    const double correlation = 12 * product / static_cast<double>(total);
    EXPECT_LT(std::abs(correlation), 4.5 / std::sqrt(static_cast<double>(total))) << n.name;
    EXPECT_LT(std::abs(ChiSquareDeviation(grid)), 4.5) << n.name;
  }
}

TEST(GateNoise, RowsDoNotShareTheirNumbers) {
  std::set<std::uint32_t> first_bits;
  for (std::uint64_t query = 0; query < 2000; ++query) {
    first_bits.insert(NoiseBits(HashNoiseRow(kAt, 0, 0, query), 0));
  }
  EXPECT_GE(first_bits.size(), 1998u);  // 2000 draws of 32 bits: a collision is rare, two rarer
}

// The vector version is private to the kernels; its bits show in which gates open. With bias b a
// gate is open when u > sigmoid(-b) exactly, so thresholds at every level of u pin down u to 2^-10,
// and gates at random scores pin it down everywhere else.
TEST(GateNoise, KernelsSeeTheScalarBits) {
  const std::int64_t queries = 37, keys = 75;
  const AttentionShape shape{
      .batch = 2, .heads = 3, .queries = queries, .keys = keys, .head_size = 4};
  const std::size_t size = static_cast<std::size_t>(2 * 3 * queries * keys);
  std::vector<float> scores(size), hashed_mask(size), stored_mask(size), uniform(size, 0.5f);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t i = 0; i < queries; ++i) {
        const NoiseRow row =
            HashNoiseRow(kAt, static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(h),
                         static_cast<std::uint64_t>(i + keys - queries));
        for (std::int64_t j = 0; j < keys; ++j) {
          uniform[static_cast<std::size_t>(((b * 3 + h) * queries + i) * keys + j)] =
              GateNoise(row, static_cast<std::uint32_t>(j));
        }
      }
    }
  }
  RandomStream random(1);
  for (int repeat = 0; repeat < 50; ++repeat) {
    // Scores within 1e-6 of the threshold: the gates can agree only if the numbers do.
    for (std::size_t n = 0; n < size; ++n) {
      const double logit = std::log(uniform[n]) - std::log1p(-static_cast<double>(uniform[n]));
      scores[n] = static_cast<float>(-logit * (1 + 2e-6 * (random.Uniform() - 0.5)));
    }
    GateOptions gate{.mode = GateMode::kSampled, .noise = kAt};
    GateMask(shape, gate, scores.data(), hashed_mask.data(), nullptr, {});
    gate.uniform = uniform.data();
    GateMask(shape, gate, scores.data(), stored_mask.data(), nullptr, {});
    ASSERT_EQ(hashed_mask, stored_mask);
  }
}

}  // namespace
}  // namespace clearhead
