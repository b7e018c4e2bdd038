// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/attention.h"
#include "kernels/attention_check.h"
#include "kernels/attention_fused-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

struct DenseForwardRow {
  static constexpr bool kSparse = false;

  HWY_NOINLINE ForwardRow operator()(RowPlace place, float* row) const {
    const FloatTag d;
    const std::int64_t count = place.position + 1;
    const float max = RowMax(row, count);
    const Vector shift = hn::Set(d, max);
    Vector sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    std::int64_t j = 0;
    for (; j + 2 * kLanes <= count; j += 2 * kLanes) {
      const Vector p0 = FastExp(hn::Sub(hn::LoadU(d, row + j), shift));
      const Vector p1 = FastExp(hn::Sub(hn::LoadU(d, row + j + kLanes), shift));
      hn::StoreU(p0, d, row + j);
      hn::StoreU(p1, d, row + j + kLanes);
      sum0 = hn::Add(sum0, p0);
      sum1 = hn::Add(sum1, p1);
    }
    for (; j < count; j += kLanes) {
      const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - j));
      const Vector p = hn::IfThenElseZero(valid, FastExp(hn::Sub(hn::LoadU(d, row + j), shift)));
      hn::StoreU(p, d, row + j);
      sum0 = hn::Add(sum0, p);
    }
    ZeroTail(row, count);
    return {.max = max, .sum = SumOf(hn::Add(sum0, sum1)), .open = count};
  }
};

struct DenseBackwardRow {
  static constexpr bool kSparse = false;

  HWY_NOINLINE std::int64_t operator()(RowPlace, std::int64_t, std::int64_t count,
                                       float log_sum_exp, float output_dot, float* scores,
                                       float* r) const {
    const FloatTag d;
    const Vector shift = hn::Set(d, log_sum_exp);
    const Vector dot = hn::Set(d, output_dot);
    std::int64_t j = 0;
    for (; j + kLanes <= count; j += kLanes) {
      const Vector p = FastExp(hn::Sub(hn::LoadU(d, scores + j), shift));
      hn::StoreU(p, d, scores + j);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, r + j), dot)), d, r + j);
    }
    if (j < count) {
      const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - j));
      const Vector p = hn::IfThenElseZero(valid, FastExp(hn::Sub(hn::LoadU(d, scores + j), shift)));
      const Vector bounded_r = hn::IfThenElseZero(valid, hn::LoadU(d, r + j));
      hn::StoreU(p, d, scores + j);
      hn::StoreU(hn::Mul(p, hn::Sub(bounded_r, dot)), d, r + j);
    }
    ZeroTail(scores, count);
    ZeroTail(r, count);
    return count;
  }
};

void Forward(const AttentionShape& shape, const AttentionInput& input, HeadRows<float> z,
             float* log_sum_exp) {
  FusedForward(shape, input, DenseForwardRow{}, z, log_sum_exp, nullptr);
}

void Backward(const AttentionShape& shape, const AttentionInput& input,
              const AttentionOutput& output, HeadRows<const float> dz,
              const AttentionGradients& gradients) {
  FusedBackward(shape, input, DenseBackwardRow{}, output, dz, gradients);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {
namespace {
HWY_EXPORT(Forward);
HWY_EXPORT(Backward);
}  // namespace

void AttentionForward(const AttentionShape& shape, const AttentionInput& input, HeadRows<float> z,
                      float* log_sum_exp) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Forward)(shape, input, z, log_sum_exp);
}

void AttentionBackward(const AttentionShape& shape, const AttentionInput& input,
                       const AttentionOutput& output, HeadRows<const float> dz,
                       const AttentionGradients& gradients) {
  CheckShape(shape);
  Check(output.log_sum_exp != nullptr, "attention backward needs the log-sum-exp of forward");
  HWY_DYNAMIC_DISPATCH(Backward)(shape, input, output, dz, gradients);
}

}  // namespace clearhead
#endif  // HWY_ONCE
