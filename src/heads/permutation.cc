// SPDX-License-Identifier: MIT
#include "heads/permutation.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/random.h"

namespace clearhead {
namespace {

constexpr std::size_t kExact = 13;

// "At least as far", with room for the rounding of sums taken in another order.
bool AsFar(double value, double observed) {
  return std::abs(value) >= std::abs(observed) * (1 - 1e-12);
}

double Sum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

std::optional<double> SignFlipPValue(std::span<const double> differences, std::uint64_t seed) {
  const std::size_t n = differences.size();
  if (n < 2) return std::nullopt;
  const double observed = Sum(differences);
  if (n <= kExact) {
    const std::uint64_t all = std::uint64_t{1} << n;
    std::uint64_t hits = 0;
    for (std::uint64_t signs = 0; signs < all; ++signs) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i)
        sum += (signs >> i & 1) ? -differences[i] : differences[i];
      hits += AsFar(sum, observed) ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(all);
  }
  RandomStream random(seed);
  std::int64_t hits = 0;
  for (std::int64_t p = 0; p < kPermutations; ++p) {
    double sum = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i % 64 == 0) bits = random.Bits();
      sum += (bits >> (i % 64) & 1) ? -differences[i] : differences[i];
    }
    hits += AsFar(sum, observed) ? 1 : 0;
  }
  return static_cast<double>(hits + 1) / static_cast<double>(kPermutations + 1);
}

std::optional<double> TwoSamplePValue(std::span<const double> a, std::span<const double> b,
                                      std::uint64_t seed) {
  if (a.size() < 2 || b.size() < 2) return std::nullopt;
  std::vector<double> pool(a.begin(), a.end());
  pool.insert(pool.end(), b.begin(), b.end());
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  const double total = Sum(pool);
  const auto difference = [&](double sum_a) { return sum_a / na - (total - sum_a) / nb; };
  const double observed = difference(Sum(a));
  RandomStream random(seed);
  std::int64_t hits = 0;
  for (std::int64_t p = 0; p < kPermutations; ++p) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {  // the first places of a fresh shuffle
      std::swap(pool[i], pool[i + random.Below(pool.size() - i)]);
      sum += pool[i];
    }
    hits += AsFar(difference(sum), observed) ? 1 : 0;
  }
  return static_cast<double>(hits + 1) / static_cast<double>(kPermutations + 1);
}

}  // namespace clearhead
