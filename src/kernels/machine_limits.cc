// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/machine_limits.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/machine_limits.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains hide the latency of two multiply-adds per cycle, and fit 16 registers.
constexpr std::int64_t kChains = 12;

std::int64_t AddsPerRound() {
  return kChains * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

float Rounds(std::int64_t rounds) {
  const hn::ScalableTag<float> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  // From different starts: equal chains would be computed once.
  auto s0 = hn::Zero(d), s1 = hn::Set(d, 1), s2 = hn::Set(d, 2), s3 = hn::Set(d, 3);
  auto s4 = hn::Set(d, 4), s5 = hn::Set(d, 5), s6 = hn::Set(d, 6), s7 = hn::Set(d, 7);
  auto s8 = hn::Set(d, 8), s9 = hn::Set(d, 9), s10 = hn::Set(d, 10), s11 = hn::Set(d, 11);
  for (std::int64_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, x, y);
    s1 = hn::MulAdd(s1, x, y);
    s2 = hn::MulAdd(s2, x, y);
    s3 = hn::MulAdd(s3, x, y);
    s4 = hn::MulAdd(s4, x, y);
    s5 = hn::MulAdd(s5, x, y);
    s6 = hn::MulAdd(s6, x, y);
    s7 = hn::MulAdd(s7, x, y);
    s8 = hn::MulAdd(s8, x, y);
    s9 = hn::MulAdd(s9, x, y);
    s10 = hn::MulAdd(s10, x, y);
    s11 = hn::MulAdd(s11, x, y);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
}

float Sum(const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, values + i));
    s1 = hn::Add(s1, hn::LoadU(d, values + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, values + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, values + i + 3 * lanes));
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  for (; i < count; ++i) sum += values[i];
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {

HWY_EXPORT(AddsPerRound);
HWY_EXPORT(Rounds);
HWY_EXPORT(Sum);

std::int64_t MultiplyAddsPerRound() { return HWY_DYNAMIC_DISPATCH(AddsPerRound)(); }
float MultiplyAddRounds(std::int64_t rounds) { return HWY_DYNAMIC_DISPATCH(Rounds)(rounds); }
float SumOf(const float* values, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(Sum)(values, count);
}

}  // namespace clearhead
#endif  // HWY_ONCE
