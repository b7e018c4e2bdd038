// SPDX-License-Identifier: MIT
#include "measure/attention_times.h"

#include "measure/bench_inputs.h"

namespace clearhead {
namespace {

constexpr GateOptions kSampled = {.mode = GateMode::kSampled, .bias = 0.0f};
// About 1 % of the gates open: scores have deviation 1.33 here.
constexpr GateOptions kHard = {.mode = GateMode::kHard, .bias = -3.1f};

}  // namespace

AttentionWork::AttentionWork(std::int64_t batch, std::int64_t heads, std::int64_t length,
                             std::int64_t size)
    : shape_{batch, heads, length, length, size, 0.125f},
      width_(heads * size),
      qkv_(RandomValues(batch * length * 3 * width_)),
      d_z_(RandomValues(batch * length * width_)),
      z_(batch * length * width_),
      d_qkv_(batch * length * 3 * width_),
      lse_(batch * heads * length),
      edges_(batch * heads),
      probability_(batch * heads) {
  for (float& value : qkv_) value *= 4.0f;
}

AttentionInput AttentionWork::Input() const {
  const std::int64_t row = 3 * width_, sequence = shape_.queries * row;
  const float* at = qkv_.data();
  return {{at, row, sequence}, {at + width_, row, sequence}, {at + 2 * width_, row, sequence}};
}

AttentionGradients AttentionWork::Gradients() {
  const std::int64_t row = 3 * width_, sequence = shape_.queries * row;
  float* at = d_qkv_.data();
  return {{at, row, sequence}, {at + width_, row, sequence}, {at + 2 * width_, row, sequence}};
}

HeadRows<float> AttentionWork::Output() { return {z_.data(), width_, shape_.queries * width_}; }

HeadRows<const float> AttentionWork::OutputGradient() const {
  return {d_z_.data(), width_, shape_.queries * width_};
}

void AttentionWork::Dense() { AttentionForward(shape_, Input(), Output(), lse_.data()); }

void AttentionWork::DenseWithBackward() {
  Dense();
  AttentionBackward(shape_, Input(), {Output(), lse_.data()}, OutputGradient(), Gradients());
}

void AttentionWork::Sampled() {
  GatedAttentionForward(shape_, Input(), kSampled, Output(), lse_.data(),
                        {edges_.data(), probability_.data()});
}

void AttentionWork::SampledWithBackward() {
  Sampled();
  GatedAttentionBackward(shape_, Input(), kSampled, 1e-6f, {Output(), lse_.data()},
                         OutputGradient(), Gradients());
}

// Evaluation counts edges and asks for nothing else.
void AttentionWork::Hard() {
  GatedAttentionForward(shape_, Input(), kHard, Output(), lse_.data(), {edges_.data(), nullptr});
}

double AttentionWork::OpenShare() const {
  double open = 0.0;
  for (const std::int64_t edges : edges_) open += static_cast<double>(edges);
  const auto pairs = static_cast<double>(shape_.queries * (shape_.queries + 1)) / 2.0;
  return open / (static_cast<double>(edges_.size()) * pairs);
}

double AttentionWork::FlopsWithBackward() const {
  const auto pairs = static_cast<double>(shape_.queries * (shape_.queries + 1)) / 2.0;
  const auto sequences = static_cast<double>(shape_.batch * shape_.heads);
  return 7.0 * 2.0 * sequences * pairs * static_cast<double>(shape_.head_size);
}

AttentionTimes TimeAttention(const Budget& budget) {
  AttentionWork work = BenchAttention();
  AttentionTimes times{};
  const Turns forward = BestSecondsInTurns(
      budget, [&] { work.Dense(); }, [&] { work.Hard(); });
  times.dense_forward = forward.first;
  times.hard_forward = forward.second;
  times.hard_open_share = work.OpenShare();
  times.gated_forward = BestSeconds(budget, [&] { work.Sampled(); });
  const Turns both = BestSecondsInTurns(
      budget, [&] { work.DenseWithBackward(); }, [&] { work.SampledWithBackward(); });
  times.dense_both = both.first;
  times.gated_both = both.second;
  times.flops_both = work.FlopsWithBackward();
  return times;
}

AttentionWork BenchAttention() { return {4, 12, 1024, 64}; }

}  // namespace clearhead
