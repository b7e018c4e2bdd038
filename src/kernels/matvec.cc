// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matvec.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// y[n] += sum over rows of x[row] W[row, :]. Eight rows at a time, so that y, which stays in L1, is
// read and written once for eight rows that come from memory.
void AddRows(std::int64_t rows, std::int64_t n, const float* x, const float* w, float* y) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t row = 0;
  for (; row + 8 <= rows; row += 8) {
    const float* r = w + row * n;
    std::int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto sum0 = hn::LoadU(d, y + j);
      auto sum1 = hn::Zero(d);
      for (int i = 0; i < 8; i += 2) {
        sum0 = hn::MulAdd(hn::Set(d, x[row + i]), hn::LoadU(d, r + i * n + j), sum0);
        sum1 = hn::MulAdd(hn::Set(d, x[row + i + 1]), hn::LoadU(d, r + (i + 1) * n + j), sum1);
      }
      hn::StoreU(hn::Add(sum0, sum1), d, y + j);
    }
    for (; j < n; ++j) {
      for (int i = 0; i < 8; ++i) y[j] += x[row + i] * r[i * n + j];
    }
  }
  for (; row < rows; ++row) {
    for (std::int64_t j = 0; j < n; ++j) y[j] += x[row] * w[row * n + j];
  }
}

float Dot(std::int64_t k, const float* a, const float* b) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= k; i += 4 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), sum1);
    sum2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * lanes), hn::LoadU(d, b + i + 2 * lanes), sum2);
    sum3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * lanes), hn::LoadU(d, b + i + 3 * lanes), sum3);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < k; ++i) sum += a[i] * b[i];
  return sum;
}

void DotRows(std::int64_t rows, std::int64_t k, const float* w, const float* x, float* y) {
  for (std::int64_t row = 0; row < rows; ++row) y[row] = Dot(k, w + row * k, x);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(AddRows);
HWY_EXPORT(DotRows);

void MatVec(std::int64_t k, std::int64_t n, const float* x, const float* w, const float* bias,
            float* y) {
  // Each thread streams its own contiguous rows into its own partial sum. (Splitting columns
  // instead makes every thread hop through memory in short pieces.)
  const int threads = Threads();
  Buffer<float> partial(static_cast<std::int64_t>(threads) * n);
  std::fill(partial.begin(), partial.end(), 0.0f);
  ParallelRanges(k, [&](int thread, std::int64_t first, std::int64_t last) {
    HWY_DYNAMIC_DISPATCH(AddRows)
    (last - first, n, x + first, w + first * n, partial.data() + thread * n);
  });
  for (std::int64_t j = 0; j < n; ++j) {
    float sum = bias == nullptr ? 0.0f : bias[j];
    for (int thread = 0; thread < threads; ++thread) sum += partial[thread * n + j];
    y[j] = sum;
  }
}

void MatVecT(std::int64_t n, std::int64_t k, const float* w, const float* x, float* y) {
  ParallelRanges(n, [&](int, std::int64_t first, std::int64_t last) {
    HWY_DYNAMIC_DISPATCH(DotRows)(last - first, k, w + first * k, x, y + first);
  });
}

}  // namespace clearhead
#endif  // HWY_ONCE
