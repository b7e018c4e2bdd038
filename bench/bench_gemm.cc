// SPDX-License-Identifier: MIT
// fp32 products: GPT-2's shapes, products of prompts in parts on all threads against whole on one,
// and one-token products against the speed of memory.
#include <benchmark/benchmark.h>

#include "core/buffer.h"
#include "core/threads.h"
#include "kernels/gemm.h"
#include "kernels/linear.h"

namespace clearhead {
namespace {

Buffer<float> Values(std::int64_t count) {
  Buffer<float> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return values;
}

// Arguments: rows, in, out. Forward, then the two backward products of the same layer.
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
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * static_cast<double>(R) * static_cast<double>(in) * static_cast<double>(out),
      benchmark::Counter::kIsIterationInvariantRate);
}
void Shapes(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const std::int64_t rows : {64, 1024}) {
    b->Args({rows, 768, 2304})
        ->Args({rows, 768, 768})
        ->Args({rows, 768, 3072})
        ->Args({rows, 3072, 768});
  }
}
BENCHMARK_CAPTURE(LinearProducts, forward, 0)->Apply(Shapes);
BENCHMARK_CAPTURE(LinearProducts, input_gradient, 1)->Apply(Shapes);
BENCHMARK_CAPTURE(LinearProducts, weight_gradient, 2)->Apply(Shapes);

// Arguments: m, n, k.
void Product(benchmark::State& state, bool parts) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Buffer<float> a = Values(m * k), b = Values(k * n);
  Buffer<float> c(m * n);
  const ThreadScope scope(parts ? CurrentPool() : nullptr);
  for (auto _ : state) Gemm({m, n, k}, {a.data(), k}, {b.data(), n}, c.data(), n, false);
}
void Products(benchmark::internal::Benchmark* b) {
  b->UseRealTime()->Unit(benchmark::kMicrosecond);
  b->Args({10, 384, 128})->Args({32, 768, 256})->Args({64, 2304, 768})->Args({1024, 2304, 768});
}
BENCHMARK_CAPTURE(Product, in_parts, true)->Apply(Products);
BENCHMARK_CAPTURE(Product, one_thread, false)->Apply(Products);

// y = x W for one token; the weights do not fit any cache when several matrices take turns.
void OneToken(benchmark::State& state, bool transposed) {
  const std::int64_t k = 768, n = 3072, copies = 32;
  const Buffer<float> w = Values(copies * k * n), x = Values(n);
  Buffer<float> y(n);
  std::int64_t turn = 0;
  for (auto _ : state) {
    const float* weights = w.data() + (turn++ % copies) * k * n;
    if (transposed) {
      MatVecT(n, k, weights, x.data(), y.data());
    } else {
      MatVec(k, n, x.data(), weights, nullptr, y.data());
    }
  }
  state.counters["GB/s"] = benchmark::Counter(4e-9 * static_cast<double>(k * n),
                                              benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(OneToken, in_by_out, false)->UseRealTime();
BENCHMARK_CAPTURE(OneToken, out_by_in, true)->UseRealTime();

}  // namespace
}  // namespace clearhead
