// SPDX-License-Identifier: MIT
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
#include <vector>

#include "core/threads.h"
#include "kernels/loss.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

float LargestLogit(std::int64_t n, const float* x) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto maxima = hn::Set(d, -std::numeric_limits<float>::infinity());
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) maxima = hn::Max(maxima, hn::LoadU(d, x + i));
  float maximum = hn::GetLane(hn::MaxOfLanes(d, maxima));
  for (; i < n; ++i) maximum = std::max(maximum, x[i]);
  return maximum;
}

// log sum exp of a row. The sum runs in 64 partial sums of at most V/64 terms each, then in double:
// fp32 rounding stays below 1e-6 even for a vocabulary of 50257.
double LogSumExp(std::int64_t n, const float* x) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float maximum = LargestLogit(n, x);
  const auto vmax = hn::Set(d, maximum);
  const auto floor = hn::Set(d, -87.0f);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  const auto term = [&](std::int64_t at) {
    return hn::Exp(d, hn::Max(floor, hn::Sub(hn::LoadU(d, x + at), vmax)));
  };
  std::int64_t i = 0;
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

// weights = exp((x - largest) / temperature); returns their sum.
double TemperedWeights(std::int64_t n, const float* x, float largest, float factor,
                       float* weights) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, largest), scale = hn::Set(d, factor), floor = hn::Set(d, -87.0f);
  auto sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto tempered = hn::Mul(hn::Sub(hn::LoadU(d, x + i), shift), scale);
    const auto weight = hn::Exp(d, hn::Max(floor, tempered));
    hn::StoreU(weight, d, weights + i);
    sums = hn::Add(sums, weight);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += weights[i] = std::exp((x[i] - largest) * factor);
  return sum;
}

// s = scale ((label + w) p_s - w p_t); returns sum p_t (log p_t - log p_s).
double DistilledRow(std::int64_t n, float log_sum_s, float log_sum_t, float scale, float label,
                    float w, const float* t, float* s) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto floor = hn::Set(d, -87.0f);
  const auto shift_s = hn::Set(d, log_sum_s), shift_t = hn::Set(d, log_sum_t);
  const auto own = hn::Set(d, scale * (label + w)), other = hn::Set(d, scale * w);
  auto sum = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto log_s = hn::Sub(hn::LoadU(d, s + i), shift_s);
    const auto log_t = hn::Sub(hn::LoadU(d, t + i), shift_t);
    const auto p_s = hn::Exp(d, hn::Max(floor, log_s)), p_t = hn::Exp(d, hn::Max(floor, log_t));
    sum = hn::MulAdd(p_t, hn::Sub(log_t, log_s), sum);
    hn::StoreU(hn::Sub(hn::Mul(own, p_s), hn::Mul(other, p_t)), d, s + i);
  }
  double divergence = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) {
    const float log_s = s[i] - log_sum_s, log_t = t[i] - log_sum_t;
    const float p_s = std::exp(log_s), p_t = std::exp(log_t);
    divergence += p_t * (log_t - log_s);
    s[i] = scale * ((label + w) * p_s - w * p_t);
  }
  return divergence;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(LargestLogit);
HWY_EXPORT(LogSumExp);
HWY_EXPORT(TemperedWeights);
HWY_EXPORT(ScaledSoftmax);
HWY_EXPORT(DistilledRow);

std::int64_t DrawFromSoftmax(std::span<const float> logits, double temperature, double uniform) {
  constexpr std::int64_t kPiece = 256;  // sums are kept of pieces; that of the draw is made again
  const auto n = static_cast<std::int64_t>(logits.size());
  const float largest = HWY_DYNAMIC_DISPATCH(LargestLogit)(n, logits.data());
  // Beyond fp32's range, 0 x infinity would be the weight of the largest.
  const auto factor = static_cast<float>(std::min(1.0 / temperature, 1e30));
  float weights[kPiece];
  const auto weigh = [&](std::int64_t first) {
    return HWY_DYNAMIC_DISPATCH(TemperedWeights)(std::min(kPiece, n - first), logits.data() + first,
                                                 largest, factor, weights);
  };
  std::vector<double> before;  // sums of all weights before a piece
  double total = 0.0;
  for (std::int64_t first = 0; first < n; first += kPiece) {
    before.push_back(total);
    total += weigh(first);
  }
  const double wanted = uniform * total;
  const auto piece = std::upper_bound(before.begin(), before.end(), wanted) - before.begin() - 1;
  std::int64_t i = piece * kPiece;
  weigh(i);
  const std::int64_t last = std::min(i + kPiece, n) - 1;
  for (double sum = before[static_cast<std::size_t>(piece)]; i < last; ++i) {
    sum += weights[i % kPiece];
    if (sum > wanted) break;
  }
  return i;
}

void CrossEntropy(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets,
                  float* logits, float* loss, float gradient_scale) {
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
  ParallelRanges(
      rows,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) one(row);
      },
      LeastRows(vocabulary));
}

void DistilledCrossEntropy(const DistilledRows& p, float* logits, const DistilledLosses& out) {
  const std::int64_t V = p.vocabulary;
  const auto one = [&](std::int64_t row) {
    float* s = logits + row * V;
    const float* t = p.teacher_logits + row * V;
    const std::int32_t target = p.targets[row];
    const double log_sum_s = HWY_DYNAMIC_DISPATCH(LogSumExp)(V, s);
    const double log_sum_t = HWY_DYNAMIC_DISPATCH(LogSumExp)(V, t);
    out.loss[row] = static_cast<float>(log_sum_s - s[target]);
    out.teacher_loss[row] = static_cast<float>(log_sum_t - t[target]);
    out.divergence[row] = static_cast<float>(HWY_DYNAMIC_DISPATCH(DistilledRow)(
        V, static_cast<float>(log_sum_s), static_cast<float>(log_sum_t), p.gradient_scale, p.label,
        p.distill, t, s));
    s[target] -= p.gradient_scale * p.label;
  };
  ParallelRanges(
      p.rows,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) one(row);
      },
      LeastRows(V));
}

}  // namespace clearhead
#endif  // HWY_ONCE
