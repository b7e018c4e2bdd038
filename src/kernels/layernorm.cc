// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layernorm.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "core/threads.h"
#include "kernels/column_sums.h"
#include "kernels/layernorm.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(i, lanes-wide) for whole vectors, then scalar(i) for the rest.
template <typename Vector, typename Scalar>
HWY_INLINE void ForEach(std::int64_t n, std::int64_t lanes, const Vector& vector,
                        const Scalar& scalar) {
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) vector(i);
  for (; i < n; ++i) scalar(i);
}

void ForwardRows(const LayerNorm& norm, std::int64_t first, std::int64_t last, const float* x,
                 float* y, float* mean, float* scale) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t n = norm.width;
  for (std::int64_t row = first; row < last; ++row) {
    const float* in = x + row * n;
    float* out = y + row * n;

    auto sums = hn::Zero(d);
    float sum = 0.0f;
    ForEach(
        n, lanes, [&](std::int64_t i) { sums = hn::Add(sums, hn::LoadU(d, in + i)); },
        [&](std::int64_t i) { sum += in[i]; });
    const float m = (sum + hn::GetLane(hn::SumOfLanes(d, sums))) / static_cast<float>(n);

    // A second pass over centred values: the one-pass formula loses digits when the mean is large.
    auto squares = hn::Zero(d);
    float square = 0.0f;
    const auto vm = hn::Set(d, m);
    ForEach(
        n, lanes,
        [&](std::int64_t i) {
          const auto c = hn::Sub(hn::LoadU(d, in + i), vm);
          squares = hn::MulAdd(c, c, squares);
        },
        [&](std::int64_t i) { square += (in[i] - m) * (in[i] - m); });
    const float variance =
        (square + hn::GetLane(hn::SumOfLanes(d, squares))) / static_cast<float>(n);
    const float s = std::sqrt(variance + norm.epsilon);

    const float inverse = 1.0f / s;
    const auto vinverse = hn::Set(d, inverse);
    ForEach(
        n, lanes,
        [&](std::int64_t i) {
          const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, in + i), vm), vinverse);
          hn::StoreU(hn::MulAdd(unit, hn::LoadU(d, norm.weight + i), hn::LoadU(d, norm.bias + i)),
                     d, out + i);
        },
        [&](std::int64_t i) { out[i] = (in[i] - m) * inverse * norm.weight[i] + norm.bias[i]; });
    mean[row] = m;
    scale[row] = s;
  }
}

// One row of dx; adds this row's share to dweight, dbias.
void BackwardRow(const LayerNorm& norm, const float* x, float m, float s, const float* dy,
                 float* dx, float* dweight, float* dbias) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t n = norm.width;
  const float inverse = 1.0f / s;
  const auto vm = hn::Set(d, m), vinverse = hn::Set(d, inverse);

  auto sums_g = hn::Zero(d), sums_gn = hn::Zero(d);
  float sum_g = 0.0f, sum_gn = 0.0f;
  ForEach(
      n, lanes,
      [&](std::int64_t i) {
        const auto dyi = hn::LoadU(d, dy + i);
        const auto g = hn::Mul(dyi, hn::LoadU(d, norm.weight + i));
        const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm), vinverse);
        sums_g = hn::Add(sums_g, g);
        sums_gn = hn::MulAdd(g, unit, sums_gn);
        if (dweight != nullptr) {
          hn::StoreU(hn::MulAdd(dyi, unit, hn::LoadU(d, dweight + i)), d, dweight + i);
          hn::StoreU(hn::Add(dyi, hn::LoadU(d, dbias + i)), d, dbias + i);
        }
      },
      [&](std::int64_t i) {
        const float g = dy[i] * norm.weight[i];
        const float unit = (x[i] - m) * inverse;
        sum_g += g;
        sum_gn += g * unit;
        if (dweight != nullptr) {
          dweight[i] += dy[i] * unit;
          dbias[i] += dy[i];
        }
      });
  const float mean_g = (sum_g + hn::GetLane(hn::SumOfLanes(d, sums_g))) / static_cast<float>(n);
  const float mean_gn = (sum_gn + hn::GetLane(hn::SumOfLanes(d, sums_gn))) / static_cast<float>(n);

  const auto vmean_g = hn::Set(d, mean_g), vmean_gn = hn::Set(d, mean_gn);
  ForEach(
      n, lanes,
      [&](std::int64_t i) {
        const auto g = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, norm.weight + i));
        const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm), vinverse);
        const auto centred = hn::Sub(hn::Sub(g, vmean_g), hn::Mul(unit, vmean_gn));
        hn::StoreU(hn::MulAdd(centred, vinverse, hn::LoadU(d, dx + i)), d, dx + i);
      },
      [&](std::int64_t i) {
        const float g = dy[i] * norm.weight[i];
        const float unit = (x[i] - m) * inverse;
        dx[i] += (g - mean_g - unit * mean_gn) * inverse;
      });
}

void BackwardRows(const LayerNorm& norm, std::int64_t first, std::int64_t last, const float* x,
                  const float* mean, const float* scale, const float* dy, float* dx, float* dweight,
                  float* dbias) {
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t at = row * norm.width;
    BackwardRow(norm, x + at, mean[row], scale[row], dy + at, dx + at, dweight, dbias);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(ForwardRows);
HWY_EXPORT(BackwardRows);

void LayerNormForward(const LayerNorm& norm, std::int64_t rows, const float* x, float* y,
                      float* mean, float* scale) {
  ParallelRanges(
      rows,
      [&](int, std::int64_t first, std::int64_t last) {
        HWY_DYNAMIC_DISPATCH(ForwardRows)(norm, first, last, x, y, mean, scale);
      },
      LeastRows(norm.width));
}

void LayerNormBackward(const LayerNorm& norm, std::int64_t rows, const float* x, const float* mean,
                       const float* scale, const float* dy, float* dx, float* dweight,
                       float* dbias) {
  if (dweight == nullptr) {
    ParallelRanges(
        rows,
        [&](int, std::int64_t first, std::int64_t last) {
          HWY_DYNAMIC_DISPATCH(BackwardRows)
          (norm, first, last, x, mean, scale, dy, dx, nullptr, nullptr);
        },
        LeastRows(norm.width));
    return;
  }
  float* const sums[] = {dweight, dbias};
  ReduceRows(rows, norm.width, sums, [&](std::int64_t first, std::int64_t last, float* partial) {
    HWY_DYNAMIC_DISPATCH(BackwardRows)
    (norm, first, last, x, mean, scale, dy, dx, partial, partial + norm.width);
  });
}

}  // namespace clearhead
#endif  // HWY_ONCE
