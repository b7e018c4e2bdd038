// SPDX-License-Identifier: MIT
// The gate of a vector of scores: one definition for the fused kernels and the stages, so that they
// agree on every gate bit for bit. Compiled once per instruction set (Highway).
#if defined(CLEARHEAD_GATED_ATTENTION_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_GATED_ATTENTION_ROW_INL_H_
#undef CLEARHEAD_GATED_ATTENTION_ROW_INL_H_
#else
#define CLEARHEAD_GATED_ATTENTION_ROW_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "kernels/attention_block-inl.h"
#include "kernels/gate_noise.h"
#include "kernels/gated_attention.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

using UnsignedTag = hn::RebindToUnsigned<FloatTag>;

// GateNoise of a row (gate_noise.h) for keys `key`, `key`+1, ...: a vector per call of Next.
class HashedNoise {
 public:
  HashedNoise(NoiseRow row, std::int64_t key) : high_(hn::Set(UnsignedTag(), row.high)) {
    const UnsignedTag du;
    const auto keys = hn::Iota(du, static_cast<std::uint32_t>(key));
    next_ = hn::Add(hn::Set(du, row.low), hn::Mul(keys, hn::Set(du, kNoiseKeyStep)));
  }
  HWY_INLINE Vector Next(std::int64_t /*left*/) {
    const FloatTag d;
    const UnsignedTag du;
    auto x = next_;
    next_ = hn::Add(next_, hn::Set(du, kNoiseKeyStep * static_cast<std::uint32_t>(kLanes)));
    x = hn::Xor(x, hn::ShiftRight<16>(x));
    x = hn::Mul(x, hn::Set(du, kNoiseMultiplier1));
    x = hn::Xor(x, hn::ShiftRight<15>(x));
    x = hn::Xor(x, high_);
    x = hn::Mul(x, hn::Set(du, kNoiseMultiplier2));
    x = hn::Xor(x, hn::ShiftRight<16>(x));
    // m 2^-23 + 2^-24 exactly, through the float 1 + m 2^-23 in [1, 2).
    const auto one_to_two = hn::Or(hn::ShiftRight<9>(x), hn::Set(du, 0x3f800000u));
    return hn::Sub(hn::BitCast(d, one_to_two), hn::Set(d, 1.0f - 0x1p-24f));
  }

 private:
  hn::Vec<UnsignedTag> next_;
  hn::Vec<UnsignedTag> high_;
};

// Noise given as numbers. The last vector of a row is read value by value: nothing follows it for
// sure.
class StoredNoise {
 public:
  explicit StoredNoise(const float* uniform) : next_(uniform) {}
  HWY_INLINE Vector Next(std::int64_t left) {
    const FloatTag d;
    const float* at = next_;
    next_ += kLanes;
    if (left >= kLanes) return hn::LoadU(d, at);
    HWY_ALIGN float part[kLanes];
    std::fill(part, part + kLanes, 0.5f);
    std::copy(at, at + left, part);
    return hn::Load(d, part);
  }

 private:
  const float* next_;
};

// Hard gates have none.
struct NoNoise {
  HWY_INLINE Vector Next(std::int64_t) { return hn::Zero(FloatTag()); }
};

using GateBits = hn::Mask<FloatTag>;

// E = exp(g).
HWY_INLINE Vector GateOdds(Vector logit) {
  return FastExp(hn::Min(hn::Set(FloatTag(), kGateLogitLimit), logit));
}

// The softmax needs exp(s - shift) for one shift per row. Since E = exp(s + bias) is there already,
// that is E times one number per row, unless shift + bias is so large that E is clamped or the
// rounding of s + bias shows.
class ShiftedExp {
 public:
  ShiftedExp(float shift, float bias)
      : from_odds_(std::abs(shift + bias) <= kFactorLimit),
        shift_(hn::Set(FloatTag(), shift)),
        factor_(hn::Set(FloatTag(), from_odds_ ? std::exp(-(shift + bias)) : 0.0f)) {}
  bool from_odds() const { return from_odds_; }

  template <bool kFromOdds>
  HWY_INLINE Vector Of(Vector score, Vector odds) const {
    if constexpr (kFromOdds) return hn::Mul(odds, factor_);
    return FastExp(hn::Sub(score, shift_));
  }

 private:
  static constexpr float kFactorLimit = 16.0f;
  bool from_odds_;
  Vector shift_, factor_;
};

template <bool kHard>
HWY_INLINE GateBits GateOpen(Vector logit, Vector odds, Vector u) {
  const FloatTag d;
  if constexpr (kHard) return hn::Gt(logit, hn::Zero(d));
  return hn::Gt(hn::Mul(u, odds), hn::Sub(hn::Set(d, 1.0f), u));
}

struct GateSlopes {
  Vector plain;  // sigmoid'(g)
  Vector noisy;  // sigmoid'(g + n)
};

// sigmoid'(g) = E/(1+E)^2 and sigmoid'(g+n) = uE(1-u)/(uE+1-u)^2; one division serves both.
template <bool kHard>
HWY_INLINE GateSlopes SlopesOf(Vector odds, Vector u) {
  const FloatTag d;
  const Vector one = hn::Set(d, 1.0f);
  const Vector sum = hn::Add(one, odds);
  if constexpr (kHard) {
    const Vector inverse = hn::Div(one, sum);
    const Vector slope = hn::Mul(odds, hn::Mul(inverse, inverse));
    return {slope, slope};
  }
  const Vector rest = hn::Sub(one, u);
  const Vector noisy_odds = hn::Mul(u, odds);
  const Vector noisy_sum = hn::Add(noisy_odds, rest);
  const Vector inverse = hn::Div(one, hn::Mul(sum, noisy_sum));
  const Vector plain_inverse = hn::Mul(inverse, noisy_sum);
  const Vector noisy_inverse = hn::Mul(inverse, sum);
  return {hn::Mul(hn::Mul(odds, plain_inverse), plain_inverse),
          hn::Mul(hn::Mul(noisy_odds, noisy_inverse), hn::Mul(rest, noisy_inverse))};
}

// Calls body(noise) with the noise source of keys `key`... of one row, and `kHard` as a constant:
// body is a functor with template <bool kHard, class Noise> auto Run(Noise) const.
template <class Body>
HWY_INLINE auto WithNoise(const AttentionShape& shape, const GateOptions& gate, std::int64_t b,
                          std::int64_t h, std::int64_t query, std::int64_t key, const Body& body) {
  if (gate.mode == GateMode::kHard) return body.template Run<true>(NoNoise{});
  if (gate.uniform != nullptr) {
    const std::int64_t row = (b * shape.heads + h) * shape.queries + query;
    return body.template Run<false>(StoredNoise(gate.uniform + row * shape.keys + key));
  }
  const std::int64_t position = query + (shape.keys - shape.queries);
  const NoiseRow row =
      HashNoiseRow(gate.noise, static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(h),
                   static_cast<std::uint64_t>(position));
  return body.template Run<false>(HashedNoise(row, key));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_GATED_ATTENTION_ROW_INL_H_
