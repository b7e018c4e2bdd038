// SPDX-License-Identifier: MIT
// SHA-256 (FIPS 180-4), for comparing with published digests.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"

namespace clearhead {

// The first 32 bits of the fractional part of a root of a prime: the standard's constants.
inline std::uint32_t RootBits(long double root) {
  return static_cast<std::uint32_t>((root - std::floor(root)) * 4294967296.0L);
}

inline std::string Sha256Hex(std::string_view message) {
  std::array<std::uint32_t, 64> constants{};
  std::array<std::uint32_t, 8> state{};
  for (int prime = 2, found = 0; found < 64; ++prime) {
    bool is_prime = true;
    for (int d = 2; d * d <= prime; ++d) is_prime = is_prime && prime % d != 0;
    if (!is_prime) continue;
    if (found < 8) state[found] = RootBits(std::sqrt(static_cast<long double>(prime)));
    constants[found++] = RootBits(std::cbrt(static_cast<long double>(prime)));
  }

  std::string padded(message);
  padded += '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) {
    padded += static_cast<char>((static_cast<std::uint64_t>(message.size()) * 8) >> shift);
  }

  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 64> w{};
    for (int i = 0; i < 16; ++i) {
      for (int b = 0; b < 4; ++b)
        w[i] = w[i] << 8 | static_cast<unsigned char>(padded[block + i * 4 + b]);
    }
    for (int i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15];
      const std::uint32_t b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                               ((e & f) ^ (~e & g)) + constants[i] + w[i];
      const std::uint32_t t2 =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> mixed = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state[i] += mixed[i];
  }
  std::string hex;
  for (const std::uint32_t word : state) hex += fmt::format("{:08x}", word);
  return hex;
}

}  // namespace clearhead
