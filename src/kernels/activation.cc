// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/threads.h"
#include "kernels/activation.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V>
HWY_INLINE V Sigmoid(D d, V x) {
  // exp(-x) overflows to infinity for x < -88, where 1/(1+inf) = 0 is the right answer; but the
  // library's Exp is defined on [-104, 88], so clamp to it.
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  return hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), hn::Exp(d, hn::Neg(bounded))));
}

// tanh(u) = 2 sigmoid(2u) - 1 turns gelu_new into x sigmoid(2u) with u = a (x + b x^3).
struct GeluNew {
  static constexpr float kA = 1.5957691216057308f;  // 2 sqrt(2/pi)
  static constexpr float kB = 0.044715f;
  template <class D, class V>
  HWY_INLINE V Value(D d, V x) const {
    const V cubic =
        hn::MulAdd(hn::Mul(hn::Set(d, kA * kB), hn::Mul(x, x)), x, hn::Mul(hn::Set(d, kA), x));
    return hn::Mul(x, Sigmoid(d, cubic));
  }
  // s + x s (1-s) u'   with s = sigmoid(2u), u' = a (1 + 3 b x^2)
  template <class D, class V>
  HWY_INLINE V Derivative(D d, V x) const {
    const V square = hn::Mul(x, x);
    const V cubic = hn::MulAdd(hn::Mul(hn::Set(d, kA * kB), square), x, hn::Mul(hn::Set(d, kA), x));
    const V s = Sigmoid(d, cubic);
    const V slope = hn::MulAdd(hn::Set(d, 3.0f * kA * kB), square, hn::Set(d, kA));
    return hn::MulAdd(hn::Mul(x, hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s))), slope, s);
  }
};

struct Silu {
  template <class D, class V>
  HWY_INLINE V Value(D d, V x) const {
    return hn::Mul(x, Sigmoid(d, x));
  }
  template <class D, class V>
  HWY_INLINE V Derivative(D d, V x) const {
    const V s = Sigmoid(d, x);
    return hn::MulAdd(hn::Mul(x, s), hn::Sub(hn::Set(d, 1.0f), s), s);
  }
};

// Whole vectors, then one partial vector through a small buffer: every element gets the same
// arithmetic whatever its place.
template <class F>
void ForwardRange(F f, std::int64_t count, const float* x, float* y) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f.Value(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < count) {
    HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
    for (std::int64_t j = i; j < count; ++j) rest[j - i] = x[j];
    hn::Store(f.Value(d, hn::Load(d, rest)), d, rest);
    for (std::int64_t j = i; j < count; ++j) y[j] = rest[j - i];
  }
}

template <class F>
void BackwardRange(F f, std::int64_t count, const float* x, const float* dy, float* dx) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, dy + i), f.Derivative(d, hn::LoadU(d, x + i))), d, dx + i);
  }
  if (i < count) {
    HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
    for (std::int64_t j = i; j < count; ++j) rest[j - i] = x[j];
    hn::Store(f.Derivative(d, hn::Load(d, rest)), d, rest);
    for (std::int64_t j = i; j < count; ++j) dx[j] = dy[j] * rest[j - i];
  }
}

void GeluNewForward(std::int64_t n, const float* x, float* y) { ForwardRange(GeluNew{}, n, x, y); }
void SiluForward(std::int64_t n, const float* x, float* y) { ForwardRange(Silu{}, n, x, y); }
void GeluNewBackward(std::int64_t n, const float* x, const float* dy, float* dx) {
  BackwardRange(GeluNew{}, n, x, dy, dx);
}
void SiluBackward(std::int64_t n, const float* x, const float* dy, float* dx) {
  BackwardRange(Silu{}, n, x, dy, dx);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {
namespace {

HWY_EXPORT(GeluNewForward);
HWY_EXPORT(GeluNewBackward);
HWY_EXPORT(SiluForward);
HWY_EXPORT(SiluBackward);

struct Name {
  Activation activation;
  std::string_view text;
};
constexpr Name kNames[] = {{Activation::kGeluNew, "gelu_new"},
                           {Activation::kGelu, "gelu"},
                           {Activation::kRelu, "relu"},
                           {Activation::kSilu, "silu"},
                           {Activation::kTanh, "tanh"}};

constexpr double kInverseSqrt2 = 1.0 / std::numbers::sqrt2;

// gelu and tanh are rare (no GPT-2 of the family uses them): plain loops over the exact functions.
float GeluExact(float x) {
  return static_cast<float>(0.5 * x * (1.0 + std::erf(x * kInverseSqrt2)));
}
float GeluExactDerivative(float x) {
  const double cdf = 0.5 * (1.0 + std::erf(x * kInverseSqrt2));
  const double pdf = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi * kInverseSqrt2;
  return static_cast<float>(cdf + x * pdf);
}

template <typename F>
void Apply(std::int64_t count, const F& f) {
  for (std::int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace

std::string_view ToText(Activation activation) {
  for (const Name& name : kNames) {
    if (name.activation == activation) return name.text;
  }
  return "?";
}

std::optional<Activation> ParseActivation(std::string_view text) {
  for (const Name& name : kNames) {
    if (name.text == text) return name.activation;
  }
  return std::nullopt;
}

void ActivationForward(Activation activation, std::int64_t count, const float* x, float* y) {
  ParallelRanges(
      count,
      [&](int, std::int64_t first, std::int64_t last) {
        const std::int64_t n = last - first;
        const float* in = x + first;
        float* out = y + first;
        switch (activation) {
          case Activation::kGeluNew:
            return HWY_DYNAMIC_DISPATCH(GeluNewForward)(n, in, out);
          case Activation::kSilu:
            return HWY_DYNAMIC_DISPATCH(SiluForward)(n, in, out);
          case Activation::kGelu:
            return Apply(n, [&](std::int64_t i) { out[i] = GeluExact(in[i]); });
          case Activation::kRelu:
            return Apply(n, [&](std::int64_t i) { out[i] = in[i] > 0.0f ? in[i] : 0.0f; });
          case Activation::kTanh:
            return Apply(n, [&](std::int64_t i) { out[i] = std::tanh(in[i]); });
        }
      },
      LeastRows(1));
}

void ActivationBackward(Activation activation, std::int64_t count, const float* x, const float* dy,
                        float* dx) {
  ParallelRanges(
      count,
      [&](int, std::int64_t first, std::int64_t last) {
        const std::int64_t n = last - first;
        const float* in = x + first;
        const float* g = dy + first;
        float* out = dx + first;
        switch (activation) {
          case Activation::kGeluNew:
            return HWY_DYNAMIC_DISPATCH(GeluNewBackward)(n, in, g, out);
          case Activation::kSilu:
            return HWY_DYNAMIC_DISPATCH(SiluBackward)(n, in, g, out);
          case Activation::kGelu:
            return Apply(n, [&](std::int64_t i) { out[i] = g[i] * GeluExactDerivative(in[i]); });
          case Activation::kRelu:
            return Apply(n, [&](std::int64_t i) { out[i] = in[i] > 0.0f ? g[i] : 0.0f; });
          case Activation::kTanh:
            return Apply(n, [&](std::int64_t i) {
              const float t = std::tanh(in[i]);
              out[i] = g[i] * (1.0f - t * t);
            });
        }
      },
      LeastRows(1));
}

void GatedActivationForward(Activation activation, std::int64_t count, const float* x,
                            const float* linear, float* y) {
  ActivationForward(activation, count, x, y);
  ParallelRanges(
      count,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) y[i] *= linear[i];
      },
      LeastRows(1));
}

void GatedActivationBackward(Activation activation, std::int64_t count, const float* x,
                             const float* linear, const float* dy, float* dx, float* dlinear) {
  ActivationForward(activation, count, x, dlinear);
  ParallelRanges(
      count,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const float d = dy[i];
          dlinear[i] *= d;
          dx[i] = d * linear[i];
        }
      },
      LeastRows(1));
  ActivationBackward(activation, count, x, dx, dx);
}

}  // namespace clearhead
#endif  // HWY_ONCE
