// SPDX-License-Identifier: MIT
// Attention of one layer at GPT-2's sizes, beside the rate of a plain matrix product in the same
// run, so that results from different machines can be compared as ratios.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/buffer.h"
#include "core/random.h"
#include "kernels/attention.h"
#include "kernels/attention_stages.h"
#include "kernels/gated_attention.h"
#include "kernels/gemm.h"

namespace clearhead {
namespace {

Buffer<float> RandomNormal(std::int64_t size, std::uint64_t seed) {
  Buffer<float> values(size);
  RandomStream random(seed);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

// One layer's tensors, laid out as the model has them: q, k, v are thirds of [B*T, 3C].
struct Layer {
  explicit Layer(const benchmark::State& state)
      : shape{.batch = state.range(0),
              .heads = state.range(1),
              .queries = state.range(2),
              .keys = state.range(2),
              .head_size = state.range(3),
              .scale = 1.0f / std::sqrt(static_cast<float>(state.range(3)))},
        channels(shape.heads * shape.head_size),
        qkv(RandomNormal(shape.batch * shape.queries * 3 * channels, 1)),
        dqkv(qkv.size()),
        z(shape.batch * shape.queries * channels),
        dz(RandomNormal(z.size(), 2)),
        log_sum_exp(shape.batch * shape.heads * shape.queries),
        open_edges(shape.batch * shape.heads),
        probability_sum(shape.batch * shape.heads) {}

  template <typename T>
  HeadRows<T> Third(T* data, int third) const {
    return {data + third * channels, 3 * channels, shape.queries * 3 * channels};
  }
  template <typename T>
  HeadRows<T> Rows(T* data) const {
    return {data, channels, shape.queries * channels};
  }
  AttentionInput input() const {
    const float* data = qkv.data();
    return {.q = Third(data, 0), .k = Third(data, 1), .v = Third(data, 2)};
  }
  AttentionOutput output() const {
    return {.z = Rows<const float>(z.data()), .log_sum_exp = log_sum_exp.data()};
  }
  AttentionGradients gradients() {
    return {.dq = Third(dqkv.data(), 0), .dk = Third(dqkv.data(), 1), .dv = Third(dqkv.data(), 2)};
  }
  GateStatistics statistics() { return {open_edges.data(), probability_sum.data()}; }
  double OpenPercent() const {
    double open = 0;
    for (const std::int64_t edges : open_edges) open += static_cast<double>(edges);
    const double pairs = static_cast<double>(shape.queries * (shape.queries + 1) / 2);
    return 100.0 * open / (pairs * static_cast<double>(shape.batch * shape.heads));
  }

  AttentionShape shape;
  std::int64_t channels;
  Buffer<float> qkv, dqkv, z, dz, log_sum_exp;
  Buffer<std::int64_t> open_edges;
  Buffer<double> probability_sum;
};

void Sgemm(benchmark::State& state) {
  const int m = 4096, n = 3072, k = 768;
  const Buffer<float> a = RandomNormal(std::int64_t{m} * k, 1),
                      b = RandomNormal(std::int64_t{k} * n, 2);
  Buffer<float> c(std::int64_t{m} * n);
  for (auto _ : state) {
    Gemm({m, n, k}, {a.data(), k}, {b.data(), n}, c.data(), n, false);
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * m * n * k, benchmark::Counter::kIsIterationInvariantRate);
}

// Useful operations: `products` multiply-adds over head_size per causal pair.
void SetRate(benchmark::State& state, const AttentionShape& shape, int products) {
  const double pairs = static_cast<double>(shape.batch * shape.heads) *
                       static_cast<double>(shape.queries * (shape.queries + 1) / 2);
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * products * pairs * static_cast<double>(shape.head_size),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void DenseForward(benchmark::State& state) {
  Layer layer(state);
  for (auto _ : state) {
    AttentionForward(layer.shape, layer.input(), layer.Rows(layer.z.data()),
                     layer.log_sum_exp.data());
  }
  SetRate(state, layer.shape, 2);
}

void DenseForwardBackward(benchmark::State& state) {
  Layer layer(state);
  for (auto _ : state) {
    AttentionForward(layer.shape, layer.input(), layer.Rows(layer.z.data()),
                     layer.log_sum_exp.data());
    AttentionBackward(layer.shape, layer.input(), layer.output(),
                      layer.Rows<const float>(layer.dz.data()), layer.gradients());
  }
  SetRate(state, layer.shape, 7);
}

void GatedForward(benchmark::State& state, GateMode mode, float bias) {
  Layer layer(state);
  const GateOptions gate{.mode = mode, .bias = bias};
  for (auto _ : state) {
    GatedAttentionForward(layer.shape, layer.input(), gate, layer.Rows(layer.z.data()),
                          layer.log_sum_exp.data(), layer.statistics());
  }
  SetRate(state, layer.shape, 2);
  state.counters["open%"] = layer.OpenPercent();
}

void GatedForwardBackward(benchmark::State& state, GateMode mode, float bias) {
  Layer layer(state);
  const GateOptions gate{.mode = mode, .bias = bias};
  for (auto _ : state) {
    GatedAttentionForward(layer.shape, layer.input(), gate, layer.Rows(layer.z.data()),
                          layer.log_sum_exp.data(), layer.statistics());
    GatedAttentionBackward(layer.shape, layer.input(), gate, 1e-6f, layer.output(),
                           layer.Rows<const float>(layer.dz.data()), layer.gradients());
  }
  SetRate(state, layer.shape, 7);
  state.counters["open%"] = layer.OpenPercent();
}

void Pattern(benchmark::State& state) {
  Layer layer(state);
  Buffer<float> pattern(layer.shape.batch * layer.shape.heads * layer.shape.queries *
                        layer.shape.keys);
  std::fill(pattern.begin(), pattern.end(), 0.0f);  // fresh pages are not the kernel's cost
  for (auto _ : state) {
    AttentionPattern(layer.shape, layer.input().q, layer.input().k, pattern.data());
  }
  SetRate(state, layer.shape, 1);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"B", "H", "T", "D"})
      ->Args({1, 12, 256, 64})
      ->Args({1, 12, 1024, 64})
      ->Args({4, 12, 1024, 64})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

BENCHMARK(Sgemm)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(DenseForward)->Apply(Sizes);
BENCHMARK(DenseForwardBackward)->Apply(Sizes);
BENCHMARK(Pattern)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForward, sampled_half_open, GateMode::kSampled, 0.0f)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForwardBackward, sampled_half_open, GateMode::kSampled, 0.0f)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForwardBackward, sampled_few_open, GateMode::kSampled, -5.0f)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForward, hard_all_open, GateMode::kHard, 20.0f)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForward, hard_half_open, GateMode::kHard, 0.0f)->Apply(Sizes);
BENCHMARK_CAPTURE(GatedForward, hard_few_open, GateMode::kHard, -2.33f)->Apply(Sizes);

}  // namespace
}  // namespace clearhead
