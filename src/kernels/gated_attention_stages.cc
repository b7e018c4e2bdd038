// SPDX-License-Identifier: MIT
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_attention_stages.cc"
#include <hwy/foreach_target.h>
// After foreach_target:
#include <hwy/highway.h>

#include <algorithm>

#include "core/threads.h"
#include "kernels/attention_check.h"
#include "kernels/attention_scratch.h"
#include "kernels/gated_attention_row-inl.h"
#include "kernels/gated_attention_stages.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

struct RowGates {
  std::int64_t open;
  float probability;
};

// mask and probability of a scratch row of scores.
struct MaskRow {
  float bias;
  std::int64_t count;
  const float* scores;
  float* mask;
  float* probability;

  template <bool kHard, class Noise>
  RowGates Run(Noise noise) const {
    const FloatTag d;
    const Vector one = hn::Set(d, 1.0f);
    Vector open_sum = hn::Zero(d), probability_sum = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const auto valid = hn::FirstN(d, static_cast<std::size_t>(std::min(kLanes, count - j)));
      const Vector g = hn::Add(hn::LoadU(d, scores + j), hn::Set(d, bias));
      const Vector odds = GateOdds(g);
      const GateBits open = hn::And(GateOpen<kHard>(g, odds, noise.Next(count - j)), valid);
      const Vector a = hn::IfThenElseZero(open, one);
      const Vector p = hn::IfThenElseZero(valid, hn::Div(odds, hn::Add(one, odds)));
      hn::StoreU(a, d, mask + j);
      hn::StoreU(p, d, probability + j);
      open_sum = hn::Add(open_sum, a);
      probability_sum = hn::Add(probability_sum, p);
    }
    return {static_cast<std::int64_t>(SumOf(open_sum)), SumOf(probability_sum)};
  }
};

void WriteRow(const float* from, std::int64_t count, std::int64_t keys, float* to) {
  std::copy(from, from + count, to);
  std::fill(to + count, to + keys, 0.0f);
}

// One task per sequence and head, rows in order, so that the sums do not depend on the threads.
void Mask(const AttentionShape& shape, const GateOptions& gate, const float* scores, float* mask,
          float* probability, const GateStatistics& statistics) {
  ParallelFor(shape.batch * shape.heads, [&](std::int64_t head) {
    const std::int64_t stride = WeightStride(shape.keys);
    float* s = ThreadScratch<float, TaskScratch>(3 * stride);
    float* a = s + stride;
    float* p = a + stride;
    std::int64_t open = 0;
    double sum = 0;
    for (std::int64_t i = 0; i < shape.queries; ++i) {
      const std::int64_t count = i + 1 + (shape.keys - shape.queries);
      const std::int64_t row = (head * shape.queries + i) * shape.keys;
      std::copy(scores + row, scores + row + count, s);
      std::fill(s + count, s + RoundUp(count, kLanes), 0.0f);
      const RowGates gates = WithNoise(shape, gate, head / shape.heads, head % shape.heads, i, 0,
                                       MaskRow{gate.bias.Of(head % shape.heads), count, s, a, p});
      open += gates.open;
      sum += gates.probability;
      if (mask != nullptr) WriteRow(a, count, shape.keys, mask + row);
      if (probability != nullptr) WriteRow(p, count, shape.keys, probability + row);
    }
    if (statistics.open_edges != nullptr) statistics.open_edges[head] = open;
    if (statistics.probability_sum != nullptr) statistics.probability_sum[head] = sum;
  });
}

// On scratch rows; the result replaces dweights. Returns the row's part of the bias's gradient.
struct BackwardRow {
  float bias, penalty_gradient;
  std::int64_t count;
  const float* scores;
  const float* pattern;
  const float* mask;
  float* dweights;

  template <bool kHard, class Noise>
  float Run(Noise noise) const {
    const FloatTag d;
    Vector sum = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Vector weight = hn::Mul(hn::LoadU(d, pattern + j), hn::LoadU(d, mask + j));
      sum = hn::MulAdd(weight, hn::LoadU(d, dweights + j), sum);
    }
    const Vector dot = hn::SumOfLanes(d, sum), penalty = hn::Set(d, penalty_gradient);
    Vector bias_sum = hn::Zero(d);
    for (std::int64_t j = 0; j < count; j += kLanes) {
      const Vector odds = GateOdds(hn::Add(hn::LoadU(d, scores + j), hn::Set(d, bias)));
      const GateSlopes slopes = SlopesOf<kHard>(odds, noise.Next(count - j));
      const Vector gain = hn::Add(hn::LoadU(d, mask + j), slopes.noisy);
      const Vector dw = hn::LoadU(d, dweights + j), p = hn::LoadU(d, pattern + j);
      const Vector through = hn::MulSub(dw, gain, dot);
      const auto valid = hn::FirstN(d, static_cast<std::size_t>(std::min(kLanes, count - j)));
      const Vector by_gate = hn::Mul(hn::Mul(p, dw), slopes.noisy);
      bias_sum =
          hn::Add(bias_sum, hn::IfThenElseZero(valid, hn::MulAdd(penalty, slopes.plain, by_gate)));
      hn::StoreU(hn::MulAdd(p, through, hn::Mul(penalty, slopes.plain)), d, dweights + j);
    }
    return SumOf(bias_sum);
  }
};

void Backward(const AttentionShape& shape, const GateOptions& gate, const GateStage& stage,
              const float* dweights, HeadNumbers penalty_gradient, float* dscores,
              double* bias_gradient) {
  ParallelFor(shape.batch * shape.heads, [&](std::int64_t head) {
    const std::int64_t stride = WeightStride(shape.keys);
    float* s = ThreadScratch<float, TaskScratch>(4 * stride);
    float* p = s + stride;
    float* a = p + stride;
    float* dw = a + stride;
    const std::int64_t h = head % shape.heads;
    double bias_sum = 0;
    for (std::int64_t i = 0; i < shape.queries; ++i) {
      const std::int64_t count = i + 1 + (shape.keys - shape.queries);
      const std::int64_t row = (head * shape.queries + i) * shape.keys;
      const auto load = [&](const float* from, float* to) {
        std::copy(from + row, from + row + count, to);
        std::fill(to + count, to + RoundUp(count, kLanes), 0.0f);
      };
      load(stage.scores, s);
      load(stage.pattern, p);
      load(stage.mask, a);
      load(dweights, dw);
      bias_sum +=
          WithNoise(shape, gate, head / shape.heads, h, i, 0,
                    BackwardRow{gate.bias.Of(h), penalty_gradient.Of(h), count, s, p, a, dw});
      WriteRow(dw, count, shape.keys, dscores + row);
    }
    if (bias_gradient != nullptr) bias_gradient[head] = bias_sum;
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead {
namespace {
HWY_EXPORT(Mask);
HWY_EXPORT(Backward);
}  // namespace

void GateMask(const AttentionShape& shape, const GateOptions& gate, const float* scores,
              float* mask, float* probability, const GateStatistics& statistics) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Mask)(shape, gate, scores, mask, probability, statistics);
}

void ApplyGate(const AttentionShape& shape, const float* pattern, const float* mask,
               float* weights) {
  CheckShape(shape);
  ParallelFor(shape.batch * shape.heads, [&](std::int64_t head) {
    for (std::int64_t i = 0; i < shape.queries; ++i) {
      const std::int64_t count = i + 1 + (shape.keys - shape.queries);
      const std::int64_t row = (head * shape.queries + i) * shape.keys;
      for (std::int64_t j = row; j < row + count; ++j) weights[j] = pattern[j] * mask[j];
      std::fill(weights + row + count, weights + row + shape.keys, 0.0f);
    }
  });
}

void GateBackward(const AttentionShape& shape, const GateOptions& gate, const GateStage& stage,
                  const float* dweights, HeadNumbers penalty_gradient, float* dscores,
                  double* bias_gradient) {
  CheckShape(shape);
  HWY_DYNAMIC_DISPATCH(Backward)
  (shape, gate, stage, dweights, penalty_gradient, dscores, bias_gradient);
}

}  // namespace clearhead
#endif  // HWY_ONCE
