// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "core/threads.h"
#include "kernels/column_sums.h"
#include "kernels/norm.h"

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

// The place of vector v: rows * groups of them.
HWY_INLINE std::int64_t At(const Norm& norm, const NormRows& place, std::int64_t v) {
  return v / place.groups * place.stride + v % place.groups * norm.width;
}

float MeanOf(const Norm& norm, const float* in) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  float sum = 0.0f;
  ForEach(
      norm.width, lanes, [&](std::int64_t i) { sums = hn::Add(sums, hn::LoadU(d, in + i)); },
      [&](std::int64_t i) { sum += in[i]; });
  return (sum + hn::GetLane(hn::SumOfLanes(d, sums))) / static_cast<float>(norm.width);
}

void ForwardVectors(const Norm& norm, const NormRows& place, std::int64_t first, std::int64_t last,
                    const float* x, float* y, float* mean, float* scale) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t n = norm.width;
  for (std::int64_t v = first; v < last; ++v) {
    const float* in = x + At(norm, place, v);
    float* out = y + At(norm, place, v);
    const float m = norm.kind == NormKind::kRms ? 0.0f : MeanOf(norm, in);

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
    const auto one = hn::Set(d, 1.0f), zero = hn::Zero(d);
    ForEach(
        n, lanes,
        [&](std::int64_t i) {
          const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, in + i), vm), vinverse);
          const auto weight = norm.weight == nullptr ? one : hn::LoadU(d, norm.weight + i);
          const auto bias = norm.bias == nullptr ? zero : hn::LoadU(d, norm.bias + i);
          hn::StoreU(hn::MulAdd(unit, weight, bias), d, out + i);
        },
        [&](std::int64_t i) {
          const float unit = (in[i] - m) * inverse;
          out[i] = unit * (norm.weight == nullptr ? 1.0f : norm.weight[i]) +
                   (norm.bias == nullptr ? 0.0f : norm.bias[i]);
        });
    mean[v] = m;
    scale[v] = s;
  }
}

// One vector of dx; adds its share to dweight, dbias.
void BackwardVector(const Norm& norm, const float* x, float m, float s, const float* dy, float* dx,
                    float* dweight, float* dbias) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t n = norm.width;
  const float inverse = 1.0f / s;
  const auto vm = hn::Set(d, m), vinverse = hn::Set(d, inverse), one = hn::Set(d, 1.0f);
  const auto weight_at = [&](std::int64_t i) {
    return norm.weight == nullptr ? one : hn::LoadU(d, norm.weight + i);
  };
  const auto plain_weight_at = [&](std::int64_t i) {
    return norm.weight == nullptr ? 1.0f : norm.weight[i];
  };

  auto sums_g = hn::Zero(d), sums_gn = hn::Zero(d);
  float sum_g = 0.0f, sum_gn = 0.0f;
  ForEach(
      n, lanes,
      [&](std::int64_t i) {
        const auto dyi = hn::LoadU(d, dy + i);
        const auto g = hn::Mul(dyi, weight_at(i));
        const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm), vinverse);
        sums_g = hn::Add(sums_g, g);
        sums_gn = hn::MulAdd(g, unit, sums_gn);
        if (dweight != nullptr) {
          hn::StoreU(hn::MulAdd(dyi, unit, hn::LoadU(d, dweight + i)), d, dweight + i);
        }
        if (dbias != nullptr) hn::StoreU(hn::Add(dyi, hn::LoadU(d, dbias + i)), d, dbias + i);
      },
      [&](std::int64_t i) {
        const float g = dy[i] * plain_weight_at(i);
        const float unit = (x[i] - m) * inverse;
        sum_g += g;
        sum_gn += g * unit;
        if (dweight != nullptr) dweight[i] += dy[i] * unit;
        if (dbias != nullptr) dbias[i] += dy[i];
      });
  const float mean_g =
      norm.kind == NormKind::kRms
          ? 0.0f
          : (sum_g + hn::GetLane(hn::SumOfLanes(d, sums_g))) / static_cast<float>(n);
  const float mean_gn = (sum_gn + hn::GetLane(hn::SumOfLanes(d, sums_gn))) / static_cast<float>(n);

  const auto vmean_g = hn::Set(d, mean_g), vmean_gn = hn::Set(d, mean_gn);
  ForEach(
      n, lanes,
      [&](std::int64_t i) {
        const auto g = hn::Mul(hn::LoadU(d, dy + i), weight_at(i));
        const auto unit = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm), vinverse);
        const auto centred = hn::Sub(hn::Sub(g, vmean_g), hn::Mul(unit, vmean_gn));
        hn::StoreU(hn::MulAdd(centred, vinverse, hn::LoadU(d, dx + i)), d, dx + i);
      },
      [&](std::int64_t i) {
        const float g = dy[i] * plain_weight_at(i);
        const float unit = (x[i] - m) * inverse;
        dx[i] += (g - mean_g - unit * mean_gn) * inverse;
      });
}

void BackwardVectors(const Norm& norm, const NormRows& place, std::int64_t first, std::int64_t last,
                     const float* x, const float* mean, const float* scale, const float* dy,
                     float* dx, float* dweight, float* dbias) {
  for (std::int64_t v = first; v < last; ++v) {
    const std::int64_t at = At(norm, place, v);
    BackwardVector(norm, x + at, mean[v], scale[v], dy + at, dx + at, dweight, dbias);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(ForwardVectors);
HWY_EXPORT(BackwardVectors);

void NormForward(const Norm& norm, const NormRows& place, const float* x, float* y, float* mean,
                 float* scale) {
  ParallelRanges(
      place.rows * place.groups,
      [&](int, std::int64_t first, std::int64_t last) {
        HWY_DYNAMIC_DISPATCH(ForwardVectors)(norm, place, first, last, x, y, mean, scale);
      },
      LeastRows(norm.width));
}

void NormBackward(const Norm& norm, const NormRows& place, const float* x, const float* mean,
                  const float* scale, const float* dy, float* dx, float* dweight, float* dbias) {
  const std::int64_t vectors = place.rows * place.groups;
  if (dweight == nullptr && dbias == nullptr) {
    ParallelRanges(
        vectors,
        [&](int, std::int64_t first, std::int64_t last) {
          HWY_DYNAMIC_DISPATCH(BackwardVectors)
          (norm, place, first, last, x, mean, scale, dy, dx, nullptr, nullptr);
        },
        LeastRows(norm.width));
    return;
  }
  // Only the sums that are wanted.
  float* sums[2];
  std::size_t count = 0;
  for (float* sum : {dweight, dbias}) {
    if (sum != nullptr) sums[count++] = sum;
  }
  ReduceRows(vectors, norm.width, std::span<float* const>(sums, count),
             [&](std::int64_t first, std::int64_t last, float* partial) {
               float* weight = dweight == nullptr ? nullptr : partial;
               float* bias = dbias == nullptr
                                 ? nullptr
                                 : partial + static_cast<std::int64_t>(count - 1) * norm.width;
               HWY_DYNAMIC_DISPATCH(BackwardVectors)
               (norm, place, first, last, x, mean, scale, dy, dx, weight, bias);
             });
}

}  // namespace clearhead
#endif  // HWY_ONCE
