// SPDX-License-Identifier: MIT
#include "kernels/rotary.h"

#include <cmath>

#include "core/threads.h"

namespace clearhead {

void RotaryTable(std::span<const double> frequencies, std::int64_t first, std::int64_t count,
                 float* cos, float* sin) {
  const auto half = static_cast<std::int64_t>(frequencies.size());
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(first + t) * frequencies[static_cast<std::size_t>(i)];
      cos[t * half + i] = static_cast<float>(std::cos(angle));
      sin[t * half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rotate(const RotaryRows& place, const float* cos, const float* sin, bool inverse, float* x) {
  const std::int64_t half = place.head_size / 2;
  const float sign = inverse ? -1.0f : 1.0f;
  ParallelRanges(
      place.rows,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = first; r < last; ++r) {
          const float* c = cos + r % place.length * half;
          const float* s = sin + r % place.length * half;
          for (std::int64_t h = 0; h < place.heads; ++h) {
            float* low = x + r * place.stride + h * place.head_size;
            float* high = low + half;
            for (std::int64_t i = 0; i < half; ++i) {
              const float a = low[i], b = high[i], turn = sign * s[i];
              low[i] = a * c[i] - b * turn;
              high[i] = b * c[i] + a * turn;
            }
          }
        }
      },
      LeastRows(place.heads * place.head_size));
}

}  // namespace clearhead
