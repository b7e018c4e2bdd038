// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/adamw.h"

#ifndef CLEARHEAD_KERNELS_ADAMW_FACTORS_
#define CLEARHEAD_KERNELS_ADAMW_FACTORS_
namespace clearhead {
// The step with everything that does not depend on the element worked out.
struct AdamWFactors {
  float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
  float keep;           // 1 - lr decay
  float step;           // lr / (1 - beta1^t)
  float inverse_root2;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
};
}  // namespace clearhead
#endif

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void AdamWRange(const AdamWFactors& f, std::int64_t count, float* w, float* g, float* m, float* v) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto scale = hn::Set(d, f.grad_scale), beta1 = hn::Set(d, f.beta1);
  const auto rest1 = hn::Set(d, f.one_minus_beta1), beta2 = hn::Set(d, f.beta2);
  const auto rest2 = hn::Set(d, f.one_minus_beta2), keep = hn::Set(d, f.keep);
  const auto step = hn::Set(d, f.step), root = hn::Set(d, f.inverse_root2);
  const auto epsilon = hn::Set(d, f.epsilon), zero = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto grad = hn::Mul(hn::LoadU(d, g + i), scale);
    const auto first = hn::MulAdd(beta1, hn::LoadU(d, m + i), hn::Mul(rest1, grad));
    const auto second = hn::MulAdd(beta2, hn::LoadU(d, v + i), hn::Mul(rest2, hn::Mul(grad, grad)));
    const auto divisor = hn::MulAdd(hn::Sqrt(second), root, epsilon);
    const auto kept = hn::Mul(hn::LoadU(d, w + i), keep);
    hn::StoreU(hn::Sub(kept, hn::Div(hn::Mul(step, first), divisor)), d, w + i);
    hn::StoreU(first, d, m + i);
    hn::StoreU(second, d, v + i);
    hn::StoreU(zero, d, g + i);
  }
  for (; i < count; ++i) {
    const float grad = g[i] * f.grad_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * grad;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (grad * grad);
    w[i] = w[i] * f.keep - f.step * m[i] / (std::sqrt(v[i]) * f.inverse_root2 + f.epsilon);
    g[i] = 0.0f;
  }
}

double SquaresRange(std::int64_t count, const float* x) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(SquaresRange);

void AdamWStep(const AdamW& o, std::int64_t t, float grad_scale, std::int64_t count, float* weights,
               float* gradients, float* first_moment, float* second_moment) {
  const double correction1 = 1.0 - std::pow(static_cast<double>(o.beta1), static_cast<double>(t));
  const double correction2 = 1.0 - std::pow(static_cast<double>(o.beta2), static_cast<double>(t));
  const AdamWFactors factors{.grad_scale = grad_scale,
                             .beta1 = o.beta1,
                             .one_minus_beta1 = 1.0f - o.beta1,
                             .beta2 = o.beta2,
                             .one_minus_beta2 = 1.0f - o.beta2,
                             .keep = 1.0f - o.lr * o.decay,
                             .step = static_cast<float>(o.lr / correction1),
                             .inverse_root2 = static_cast<float>(1.0 / std::sqrt(correction2)),
                             .epsilon = o.epsilon};
  // Blocks of whole vectors, so that an element gets the same arithmetic on any number of threads.
  constexpr std::int64_t kBlock = 1 << 14;
  ParallelRanges((count + kBlock - 1) / kBlock,
                 [&](int, std::int64_t first, std::int64_t last) {
                   const std::int64_t at = first * kBlock, end = std::min(count, last * kBlock);
                   HWY_DYNAMIC_DISPATCH(AdamWRange)
                   (factors, end - at, weights + at, gradients + at, first_moment + at,
                    second_moment + at);
                 },
                 /*least=*/2);
}

double SumOfSquares(std::int64_t count, const float* values) {
  constexpr std::int64_t kBlock = 1 << 14;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  static thread_local Buffer<double> partials;
  if (partials.size() < blocks) partials = Buffer<double>(blocks);
  double* sums = partials.data();
  ParallelRanges(
      blocks,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t b = first; b < last; ++b) {
          const std::int64_t at = b * kBlock;
          sums[b] = HWY_DYNAMIC_DISPATCH(SquaresRange)(std::min(kBlock, count - at), values + at);
        }
      },
      /*least=*/4);
  double sum = 0.0;
  for (std::int64_t b = 0; b < blocks; ++b) sum += sums[b];
  return sum;
}

}  // namespace clearhead
#endif  // HWY_ONCE
