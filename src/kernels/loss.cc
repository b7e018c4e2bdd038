#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/loss.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/threads.h"
#include "kernels/loss.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// log sum exp of a row. The sum runs in 64 partial sums of at most V/64 terms each, then in double:
// fp32 rounding stays below 1e-6 even for a vocabulary of 50257.
double LogSumExp(std::int64_t n, const float* x) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto maxima = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) maxima = hn::Max(maxima, hn::LoadU(d, x + i));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, maxima));
  for (; i < n; ++i) maximum = std::max(maximum, x[i]);

  const auto vmax = hn::Set(d, maximum);
  const auto floor = hn::Set(d, -87.0f);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  const auto term = [&](std::int64_t at) {
    return hn::Exp(d, hn::Max(floor, hn::Sub(hn::LoadU(d, x + at), vmax)));
  };
  i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, term(i));
    sum1 = hn::Add(sum1, term(i + lanes));
    sum2 = hn::Add(sum2, term(i + 2 * lanes));
    sum3 = hn::Add(sum3, term(i + 3 * lanes));
  }
  double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum0))) +
               hn::GetLane(hn::SumOfLanes(d, sum1)) + hn::GetLane(hn::SumOfLanes(d, sum2)) +
               hn::GetLane(hn::SumOfLanes(d, sum3));
  for (; i < n; ++i) sum += std::exp(x[i] - maximum);
  return maximum + std::log(sum);
}

// x = scale * exp(x - log_sum)
void ScaledSoftmax(std::int64_t n, float log_sum, float scale, float* x) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, log_sum), factor = hn::Set(d, scale), floor = hn::Set(d, -87.0f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto p = hn::Exp(d, hn::Max(floor, hn::Sub(hn::LoadU(d, x + i), shift)));
    hn::StoreU(hn::Mul(p, factor), d, x + i);
  }
  for (; i < n; ++i) x[i] = scale * std::exp(x[i] - log_sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(LogSumExp);
HWY_EXPORT(ScaledSoftmax);

void CrossEntropy(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets, float* logits,
                  float* loss, float gradient_scale) {
  const auto one = [&](std::int64_t row) {
    float* x = logits + row * vocabulary;
    const std::int32_t target = targets[row];
    if (target < 0) {
      loss[row] = 0.0f;
      if (gradient_scale != 0.0f) std::fill(x, x + vocabulary, 0.0f);
      return;
    }
    const double log_sum = HWY_DYNAMIC_DISPATCH(LogSumExp)(vocabulary, x);
    loss[row] = static_cast<float>(log_sum - x[target]);
    if (gradient_scale != 0.0f) {
      HWY_DYNAMIC_DISPATCH(ScaledSoftmax)
      (vocabulary, static_cast<float>(log_sum), gradient_scale, x);
      x[target] -= gradient_scale;
    }
  };
  ParallelRanges(rows, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) one(row);
  }, LeastRows(vocabulary));
}

}  // namespace clearhead
#endif  // HWY_ONCE
