// SPDX-License-Identifier: MIT
// Sums over rows into vectors of one row's width: bias and layer-norm gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/buffer.h"
#include "core/threads.h"

namespace clearhead {

// Rows are cut into blocks of a fixed height whatever the thread count; body(first, last, partial)
// adds a block's rows into partial[sums, width], and blocks are then added to sums[s] in their
// order. So the result does not depend on the number of threads. No allocation once a thread has
// seen the width.
template <typename Body>
void ReduceRows(std::int64_t rows, std::int64_t width, std::span<float* const> sums,
                const Body& body) {
  constexpr std::int64_t kBlock = 128;
  const auto count = static_cast<std::int64_t>(sums.size());
  const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
  static thread_local Buffer<float>
      partials;  // of the calling thread; workers write disjoint parts
  const std::int64_t needed = blocks * count * width;
  if (partials.size() < needed) partials = Buffer<float>(needed);
  float* const base = partials.data();
  ParallelFor(blocks, [&](std::int64_t block) {
    float* const partial = base + block * count * width;
    std::fill(partial, partial + count * width, 0.0f);
    body(block * kBlock, std::min(rows, (block + 1) * kBlock), partial);
  });
  for (std::int64_t block = 0; block < blocks; ++block) {
    for (std::int64_t s = 0; s < count; ++s) {
      const float* from = base + (block * count + s) * width;
      for (std::int64_t i = 0; i < width; ++i) sums[s][i] += from[i];
    }
  }
}

}  // namespace clearhead
