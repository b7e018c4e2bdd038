// SPDX-License-Identifier: MIT
// fp32 products beside other libraries where they are installed, in turns, and beside what the
// cores and the memory give: GPT-2's shapes by many and by few rows, plain and packed, and the
// three products of a linear layer.
#include <benchmark/benchmark.h>

#include "bench_yardsticks.h"
#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/gemm.h"
#include "kernels/linear.h"
#include "kernels/machine_limits.h"
#include "kernels/packed_matrix.h"
#include "measure/best_seconds.h"

namespace clearhead {
namespace {

Buffer<float> Values(std::int64_t count) {
  Buffer<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return values;
}

double Flops(std::int64_t m, std::int64_t k, std::int64_t n) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
}

// Multiply-adds on registers, on all threads, in FLOP/s.
double Peak() {
  constexpr std::int64_t kRounds = 500'000;
  const double count = 2.0 * static_cast<double>(Threads() * kRounds * MultiplyAddsPerRound());
  return count / BestSeconds({0.1, 3}, [&] {
           OnEachThread([] { benchmark::DoNotOptimize(MultiplyAddRounds(kRounds)); });
         });
}

// Arguments: rows, in, out. Each turn measures ours (packed, and plain), then the others.
void InTurns(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = state.range(1), n = state.range(2);
  const Buffer<float> a = Values(m * k), b = Values(k * n);
  Buffer<float> c(m * n);
  PackedPanels packed;
  packed.Pack({Weight(b.data()), n}, k, n);
  const GemmOutput out{.c = c.data(), .stride = n};
  const double flops = Flops(m, k, n);
  double peak = 0, ours = 0, plain = 0, openblas = 0, dnnl = 0;
  const Budget budget{0.05, 3};
  const auto best = [&](double* speed, const auto& call) {
    *speed = std::max(*speed, flops / BestSeconds(budget, call));
  };
  for (auto _ : state) {
    peak = std::max(peak, Peak());
    best(&ours, [&] { Gemm(m, {a.data(), k}, packed, out); });
    if (kHaveOpenBlas)
      best(&openblas, [&] { OpenBlasGemm(m, n, k, a.data(), b.data(), c.data()); });
    best(&plain, [&] { Gemm({m, n, k}, {a.data(), k}, {Weight(b.data()), n}, out); });
    if (kHaveDnnl) best(&dnnl, [&] { DnnlGemm(m, n, k, a.data(), b.data(), c.data()); });
  }
  state.counters["packed_GFLOPs"] = ours / 1e9;
  state.counters["plain_GFLOPs"] = plain / 1e9;
  state.counters["of_peak"] = ours / peak;
  if (kHaveOpenBlas) state.counters["x_openblas"] = ours / openblas;
  if (kHaveDnnl) state.counters["x_dnnl"] = ours / dnnl;
  if (kHaveOpenBlas) state.SetLabel(OpenBlasCore());
}
BENCHMARK(InTurns)
    ->Args({4096, 768, 3072})
    ->Args({1024, 768, 2304})
    ->Args({1024, 3072, 768})
    ->Args({1024, 768, 50257})
    ->Args({64, 768, 3072})
    ->Args({64, 256, 1024})
    ->Args({31, 256, 1024})
    ->Iterations(3)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Few rows with packed weights that come from memory: several matrices take turns, so that none is
// in a cache. Arguments: rows, bytes of a weight.
void FewRows(benchmark::State& state) {
  const std::int64_t m = state.range(0), k = 768, n = 3072, copies = 48;
  const DType dtype = state.range(1) == 4 ? DType::kF32 : DType::kBF16;
  const Buffer<float> w = Values(k * n), x = Values(m * k);
  Buffer<std::byte> stored(k * n * DTypeSize(dtype));
  ConvertFromFloat(w.data(), k * n, dtype, stored.data());
  std::vector<PackedPanels> packed(static_cast<std::size_t>(copies));
  for (PackedPanels& each : packed) each.Pack({{stored.data(), dtype}, n}, k, n);
  Buffer<float> y(m * n);
  const Buffer<float> memory = Values(copies * k * n);
  std::vector<float> sums(static_cast<std::size_t>(copies));
  const double read =
      4.0 * static_cast<double>(memory.size()) / BestSeconds({0.3, 3}, [&] {
        ParallelFor(copies * 3, [&](std::int64_t i) {
          benchmark::DoNotOptimize(SumOf(memory.data() + i * (k * n / 3), k * n / 3));
        });
      });
  std::size_t turn = 0;
  for (auto _ : state) {
    Gemm(m, {x.data(), k}, packed[turn++ % packed.size()], {.c = y.data(), .stride = n});
  }
  const double bytes = static_cast<double>(k * n * DTypeSize(dtype));
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * bytes, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["of_memory_speed"] =
      benchmark::Counter(bytes / read, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(FewRows)->ArgsProduct({{1, 4, 8}, {4, 2}})->UseRealTime()->Unit(benchmark::kMicrosecond);

// Arguments: rows, in, out. Forward, then the two backward products of the same layer; plain.
void LinearProducts(benchmark::State& state, int which) {
  const std::int64_t R = state.range(0), in = state.range(1), out = state.range(2);
  const Buffer<float> x = Values(R * in), w = Values(in * out), bias = Values(out),
                      dy = Values(R * out);
  Buffer<float> y(R * out), dx(R * in), dw = Values(in * out), db = Values(out);
  const Linear layer = MakeLinear(Weight(w.data()), bias.data(), in, out, Order::kInOut);
  for (auto _ : state) {
    if (which == 0) LinearForward(layer, R, x.data(), y.data());
    if (which == 1) LinearBackwardInput(layer, R, dy.data(), dx.data());
    if (which == 2)
      LinearBackwardWeight(layer, R, x.data(), dy.data(), nullptr, dw.data(), db.data());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(1e-9 * Flops(R, in, out), benchmark::Counter::kIsIterationInvariantRate);
}
void Shapes(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const std::int64_t rows : {64, 1024}) b->Args({rows, 768, 3072})->Args({rows, 3072, 768});
}
BENCHMARK_CAPTURE(LinearProducts, forward, 0)->Apply(Shapes);
BENCHMARK_CAPTURE(LinearProducts, input_gradient, 1)->Apply(Shapes);
BENCHMARK_CAPTURE(LinearProducts, weight_gradient, 2)->Apply(Shapes);

}  // namespace
}  // namespace clearhead
