// SPDX-License-Identifier: MIT
// Random numbers as a pure function of coordinates: no state, no order. The same (seed,
// coordinates) give the same bits in forward, backward, reference and under any number of threads.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>

namespace clearhead {

// A bijective 64-bit mixer with full avalanche (the finaliser of the SplitMix family).
constexpr std::uint64_t Mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x;
}

constexpr std::uint64_t HashCoordinates(std::uint64_t seed,
                                        std::initializer_list<std::uint64_t> coordinates) {
  std::uint64_t hash = Mix64(seed + 0x9e3779b97f4a7c15ull);
  for (const std::uint64_t c : coordinates) hash = Mix64(hash ^ (c + 0x9e3779b97f4a7c15ull));
  return hash;
}

// In (0, 1): never 0 or 1, so that log(u) and log(1-u) are finite.
constexpr double ToUniform(std::uint64_t bits) {
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

// A sequence for code that wants "the next number": element n is a hash of (seed, n).
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t Bits() { return HashCoordinates(seed_, {count_++}); }
  double Uniform() { return ToUniform(Bits()); }
  // In [0, bound), bound < 2^32: the upper half of a 32 x 32 bit product.
  std::uint64_t Below(std::uint64_t bound) { return ((Bits() >> 32) * bound) >> 32; }
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

}  // namespace clearhead
