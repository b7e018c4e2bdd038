// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include "kernels/attention_check.h"
#include "kernels/attention_fused-inl.h"
#include "kernels/attention_scratch.h"
#include "kernels/gated_attention.h"
#include "kernels/gated_attention_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

// Scores to exp(s - max) where the gate is open and 0 where it is closed.
template <bool kCountProbability>
struct ForwardWeights {
  float bias;
  std::int64_t count;
  float* row;

  template <bool kHard, class Noise>
  HWY_NOINLINE ForwardRow Run(Noise noise) const {
    const float max = RowMax(row, count);
    const ShiftedExp shifted(max, bias);
    // A hard gate needs no odds unless its probability is asked for.
    if (shifted.from_odds() && (kCountProbability || !kHard)) {
      return Loop<kHard, true>(noise, max, shifted);
    }
    return Loop<kHard, false>(noise, max, shifted);
  }

  template <bool kHard, bool kFromOdds, class Noise>
  HWY_INLINE ForwardRow Loop(Noise noise, float max, const ShiftedExp& shifted) const {
    const FloatTag d;
    const Vector one = hn::Set(d, 1.0f);
    const Vector shift_gate = hn::Set(d, bias);
    Vector sum = hn::Zero(d), probability = hn::Zero(d), open_count = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Vector s = hn::LoadU(d, row + j);
      const Vector g = hn::Add(s, shift_gate);
      const Vector odds = kHard && !kCountProbability ? one : GateOdds(g);
      Vector p = shifted.Of<kFromOdds>(s, odds);
      GateBits open = GateOpen<kHard>(g, odds, noise.Next(count - j));
      Vector gate_probability = kCountProbability ? hn::Div(odds, hn::Add(one, odds)) : one;
      if (count - j < kLanes) {
        const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - j));
        p = hn::IfThenElseZero(valid, p);
        open = hn::And(open, valid);
        gate_probability = hn::IfThenElseZero(valid, gate_probability);
      }
      sum = hn::Add(sum, p);
      open_count = hn::Add(open_count, hn::IfThenElseZero(open, one));
      if (kCountProbability) probability = hn::Add(probability, gate_probability);
      hn::StoreU(hn::IfThenElseZero(open, p), d, row + j);
    }
    ZeroTail(row, count);
    return {.max = max,
            .sum = SumOf(sum),
            .open = static_cast<std::int64_t>(SumOf(open_count)),
            .probability = SumOf(probability)};
  }
};

template <bool kCountProbability>
struct GatedForwardRow {
  static constexpr bool kSparse = true;
  const AttentionShape& shape;
  const GateOptions& gate;

  ForwardRow operator()(RowPlace place, float* row) const {
    return WithNoise(
        shape, gate, place.b, place.h, place.query, 0,
        ForwardWeights<kCountProbability>{gate.bias.Of(place.h), place.position + 1, row});
  }
};

struct BackwardRow {
  std::int64_t open;
  float bias_gradient;
};

// w = p a into scores;  ds = p (r (a + sigmoid'(g + n)) - D) + c sigmoid'(g) into r.
template <bool kBiasGradient>
struct BackwardWeights {
  float bias, penalty_gradient, log_sum_exp, output_dot;
  std::int64_t count;
  float* scores;
  float* r;

  template <bool kHard, class Noise>
  HWY_NOINLINE BackwardRow Run(Noise noise) const {
    const ShiftedExp shifted(log_sum_exp, bias);
    return shifted.from_odds() ? Loop<kHard, true>(noise, shifted)
                               : Loop<kHard, false>(noise, shifted);
  }

  template <bool kHard, bool kFromOdds, class Noise>
  HWY_INLINE BackwardRow Loop(Noise noise, const ShiftedExp& shifted) const {
    const FloatTag d;
    const Vector one = hn::Set(d, 1.0f);
    const Vector shift_gate = hn::Set(d, bias);
    const Vector dot = hn::Set(d, output_dot);
    const Vector penalty = hn::Set(d, penalty_gradient);
    Vector open_count = hn::Zero(d), bias_sum = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Vector s = hn::LoadU(d, scores + j);
      const Vector g = hn::Add(s, shift_gate);
      const Vector odds = GateOdds(g);
      Vector p = shifted.Of<kFromOdds>(s, odds);
      const Vector u = noise.Next(count - j);
      const GateBits open = GateOpen<kHard>(g, odds, u);
      GateSlopes slopes = SlopesOf<kHard>(odds, u);
      Vector r_j = hn::LoadU(d, r + j);
      if (count - j < kLanes) {
        const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - j));
        p = hn::IfThenElseZero(valid, p);
        r_j = hn::IfThenElseZero(valid, r_j);
        slopes.plain = hn::IfThenElseZero(valid, slopes.plain);
      }
      const Vector a = hn::IfThenElseZero(open, one);
      open_count = hn::Add(open_count, a);
      hn::StoreU(hn::Mul(p, a), d, scores + j);
      const Vector through = hn::MulSub(r_j, hn::Add(a, slopes.noisy), dot);
      hn::StoreU(hn::MulAdd(p, through, hn::Mul(penalty, slopes.plain)), d, r + j);
      if (kBiasGradient) {
        const Vector by_gate = hn::Mul(hn::Mul(p, r_j), slopes.noisy);
        bias_sum = hn::Add(bias_sum, hn::MulAdd(penalty, slopes.plain, by_gate));
      }
    }
    ZeroTail(scores, count);
    ZeroTail(r, count);
    return {static_cast<std::int64_t>(SumOf(open_count)), kBiasGradient ? SumOf(bias_sum) : 0.0f};
  }
};

// A sequence and head is one task, whose rows come in order: their sums too are the same for any
// number of threads.
template <bool kBiasGradient>
struct GatedBackwardRow {
  static constexpr bool kSparse = true;
  const AttentionShape& shape;
  const GateOptions& gate;
  HeadNumbers penalty_gradient;
  double* bias_gradient;

  std::int64_t operator()(RowPlace place, std::int64_t key, std::int64_t count, float log_sum_exp,
                          float output_dot, float* scores, float* r) const {
    const BackwardRow row = WithNoise(
        shape, gate, place.b, place.h, place.query, key,
        BackwardWeights<kBiasGradient>{gate.bias.Of(place.h), penalty_gradient.Of(place.h),
                                       log_sum_exp, output_dot, count, scores, r});
    if (kBiasGradient) bias_gradient[place.b * shape.heads + place.h] += row.bias_gradient;
    return row.open;
  }
};

// Statistics are summed per block and then over blocks, in order: the same for any number of
// threads.
void Forward(const AttentionShape& shape, const AttentionInput& input, const GateOptions& gate,
             HeadRows<float> z, float* log_sum_exp, const GateStatistics& statistics) {
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t blocks = QueryBlocks(shape);
  BlockStatistics* parts = ThreadScratch<BlockStatistics, CallerScratch>(heads * blocks);
  if (statistics.probability_sum != nullptr) {
    FusedForward(shape, input, GatedForwardRow<true>{shape, gate}, z, log_sum_exp, parts);
  } else {
    FusedForward(shape, input, GatedForwardRow<false>{shape, gate}, z, log_sum_exp, parts);
  }
  for (std::int64_t head = 0; head < heads; ++head) {
    BlockStatistics sum;
    for (std::int64_t i = 0; i < blocks; ++i) {
      sum.open += parts[head * blocks + i].open;
      sum.probability += parts[head * blocks + i].probability;
    }
    if (statistics.open_edges != nullptr) statistics.open_edges[head] = sum.open;
    if (statistics.probability_sum != nullptr) statistics.probability_sum[head] = sum.probability;
  }
}

void Backward(const AttentionShape& shape, const AttentionInput& input, const GateOptions& gate,
              HeadNumbers penalty_gradient, const AttentionOutput& output, HeadRows<const float> dz,
              const AttentionGradients& gradients, double* bias_gradient) {
  if (bias_gradient == nullptr) {
    FusedBackward(shape, input,
                  GatedBackwardRow<false>{shape, gate, penalty_gradient, bias_gradient}, output, dz,
                  gradients);
    return;
  }
  std::fill(bias_gradient, bias_gradient + shape.batch * shape.heads, 0.0);
  FusedBackward(shape, input, GatedBackwardRow<true>{shape, gate, penalty_gradient, bias_gradient},
                output, dz, gradients);
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

void GatedAttentionForward(const AttentionShape& shape, const AttentionInput& input,
                           const GateOptions& gate, HeadRows<float> z, float* log_sum_exp,
                           const GateStatistics& statistics) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Forward)(shape, input, gate, z, log_sum_exp, statistics);
}

void GatedAttentionBackward(const AttentionShape& shape, const AttentionInput& input,
                            const GateOptions& gate, HeadNumbers penalty_gradient,
                            const AttentionOutput& output, HeadRows<const float> dz,
                            const AttentionGradients& gradients, double* bias_gradient) {
  CheckShape(shape);
  Check(output.log_sum_exp != nullptr, "attention backward needs the log-sum-exp of forward");
  HWY_DYNAMIC_DISPATCH(Backward)
  (shape, input, gate, penalty_gradient, output, dz, gradients, bias_gradient);
}

}  // namespace clearhead
#endif  // HWY_ONCE
