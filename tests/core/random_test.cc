// SPDX-License-Identifier: MIT
#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <vector>

namespace clearhead {
namespace {

TEST(Random, UniformIsStrictlyInsideTheUnitInterval) {
  EXPECT_GT(ToUniform(0), 0.0);
  EXPECT_LT(ToUniform(std::numeric_limits<std::uint64_t>::max()), 1.0);
  EXPECT_TRUE(std::isfinite(std::log(ToUniform(0))));
  EXPECT_TRUE(std::isfinite(std::log1p(-ToUniform(std::numeric_limits<std::uint64_t>::max()))));
  EXPECT_EQ(ToUniform(std::uint64_t{1} << 63), 0.5 + 0x1p-53);
}

TEST(Random, UniformMoments) {
  constexpr int kCount = 200'000;
  RandomStream stream(1);
  double sum = 0, squares = 0;
  std::vector<int> bins(16);
  for (int i = 0; i < kCount; ++i) {
    const double u = stream.Uniform();
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    ++bins[static_cast<std::size_t>(u * 16)];
  }
  const double mean = sum / kCount;
  // Five standard errors: sqrt(1/12)/sqrt(n) for the mean, sqrt(1/180)/sqrt(n) for the variance.
  EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / kCount));
  double chi_square = 0;
  for (const int bin : bins) chi_square += std::pow(bin - kCount / 16.0, 2) / (kCount / 16.0);
  EXPECT_LT(chi_square, 44.3);  // 15 degrees of freedom, p = 1e-4
  EXPECT_GT(chi_square, 1.5);   // too even is not random either
}

TEST(Random, NormalMoments) {
  constexpr int kCount = 200'000;
  RandomStream stream(2);
  double powers[5] = {};
  for (int i = 0; i < kCount; ++i) {
    const double x = stream.Normal();
    ASSERT_TRUE(std::isfinite(x));
    for (int p = 1; p <= 4; ++p) powers[p] += std::pow(x, p) / kCount;
  }
  // E[x^k] = 0, 1, 0, 3 with variances 1, 2, 15, 96.
  EXPECT_NEAR(powers[1], 0, 5 * std::sqrt(1.0 / kCount));
  EXPECT_NEAR(powers[2], 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(powers[3], 0, 5 * std::sqrt(15.0 / kCount));
  EXPECT_NEAR(powers[4], 3, 5 * std::sqrt(96.0 / kCount));
}

TEST(Random, BelowStaysBelowAndReachesEverything) {
  RandomStream stream(3);
  for (const std::uint64_t bound : {1, 2, 3, 7, 10}) {
    std::vector<int> seen(bound);
    for (int i = 0; i < 10'000; ++i) {
      const std::uint64_t value = stream.Below(bound);
      ASSERT_LT(value, bound);
      ++seen[value];
    }
    const double expected = 10'000.0 / static_cast<double>(bound);
    for (const int count : seen) EXPECT_NEAR(count, expected, 6 * std::sqrt(expected));
  }
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 100; ++i) EXPECT_LT(stream.Below(huge), huge);
}

TEST(Random, CoordinatesMatterByValueOrderAndNumber) {
  std::unordered_set<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    hashes.insert(HashCoordinates(seed, {}));
    for (std::uint64_t i = 0; i < 16; ++i) {
      hashes.insert(HashCoordinates(seed, {i}));
      for (std::uint64_t j = 0; j < 16; ++j) hashes.insert(HashCoordinates(seed, {i, j}));
    }
  }
  EXPECT_EQ(hashes.size(), 4u * (1 + 16 + 256));
}

TEST(Random, OneBitOfInputFlipsHalfTheOutput) {
  double flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    for (std::uint64_t i = 0; i < 64; ++i) {
      const std::uint64_t other = i ^ (std::uint64_t{1} << bit);
      flipped += __builtin_popcountll(HashCoordinates(9, {i}) ^ HashCoordinates(9, {other}));
    }
  }
  EXPECT_NEAR(flipped / (64 * 64), 32, 0.5);
}

TEST(Random, TheStreamIsAFunctionOfSeedAndIndex) {
  RandomStream first(77), second(77), other(78);
  bool all_equal = true;
  for (std::uint64_t n = 0; n < 100; ++n) {
    const std::uint64_t bits = first.Bits();
    EXPECT_EQ(bits, HashCoordinates(77, {n}));
    EXPECT_EQ(bits, second.Bits());
    all_equal = all_equal && bits == other.Bits();
  }
  EXPECT_FALSE(all_equal);
}

// Pinned: a saved seed must give the same gates, dropout and initial weights in every later
// version. The values were computed apart from this code, with Python integers.
TEST(Random, PinnedValues) {
  EXPECT_EQ(Mix64(0), 0u);
  EXPECT_EQ(Mix64(1), 0x5692161d100b05e5ull);
  EXPECT_EQ(HashCoordinates(0, {}), 0xe220a8397b1dcdafull);
  EXPECT_EQ(HashCoordinates(42, {1, 2, 3}), 0x27b4feda3693c4a8ull);
  EXPECT_EQ(HashCoordinates(~std::uint64_t{0}, {~std::uint64_t{0}}), 0x96b8647c27e9e0b1ull);
  RandomStream stream(1234);
  EXPECT_EQ(stream.Bits(), 0x29280b966c75710dull);
  EXPECT_EQ(stream.Bits(), 0x1fd5f1b217d0e806ull);
  EXPECT_EQ(stream.Below(1000), 936u);
}

}  // namespace
}  // namespace clearhead
