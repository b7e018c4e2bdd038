// SPDX-License-Identifier: MIT
// bf16 products on AMX tiles beside OpenBLAS's fp32 products, on the products of a GPT-2 124M
// training step. Both in one run, because the machine's mood changes between runs: compare the
// pairs.
//
//   Forward    y  = x W       [tokens,in] [in,out]     W packed beforehand
//   Input      dx = dy W^T    [tokens,out] [out,in]    W^T packed beforehand
//   Weight     dW += x^T dy   [in,tokens] [tokens,out] dy packed inside the timing
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/random.h"
#include "core/threads.h"
#include "kernels/bf16_gemm.h"
#include "kernels/gemm.h"

namespace clearhead {
namespace {

Buffer<float> Normals(std::int64_t size, std::uint64_t seed) {
  Buffer<float> values(size);
  ParallelFor((size + 4095) / 4096, [&](std::int64_t block) {
    RandomStream random(HashCoordinates(seed, {static_cast<std::uint64_t>(block)}));
    const std::int64_t end = std::min(size, (block + 1) * 4096);
    for (std::int64_t i = block * 4096; i < end; ++i)
      values[i] = static_cast<float>(random.Normal());
  });
  return values;
}

struct Layer {
  explicit Layer(const benchmark::State& state)
      : tokens(state.range(0)),
        in(state.range(1)),
        out(state.range(2)),
        x(Normals(tokens * in, 1)),
        w(Normals(in * out, 2)),
        y(Normals(tokens * out, 3)) {}

  std::int64_t tokens, in, out;
  Buffer<float> x, w, y;
};

void Report(benchmark::State& state, const Layer& layer) {
  const double flops = 2.0 * static_cast<double>(layer.tokens * layer.in) *
                       static_cast<double>(layer.out) * static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsRate);
  state.counters["threads"] = Threads();
}

bool Skip(benchmark::State& state) {
  if (Bf16GemmAvailable()) return false;
  state.SkipWithError(std::string(Bf16GemmReason()).c_str());
  return true;
}

void ForwardBf16(benchmark::State& state) {
  if (Skip(state)) return;
  Layer layer(state);
  PackedBf16 packed;
  packed.Pack(layer.w.data(), layer.in, layer.out, layer.out, false);
  for (auto _ : state) {
    Bf16Gemm({.m = layer.tokens,
              .a = layer.x.data(),
              .lda = layer.in,
              .b = &packed,
              .c = layer.y.data(),
              .ldc = layer.out});
  }
  Report(state, layer);
}

void ForwardFp32(benchmark::State& state) {
  Layer layer(state);
  for (auto _ : state) {
    Gemm({layer.tokens, layer.out, layer.in}, {layer.x.data(), layer.in},
         {layer.w.data(), layer.out}, layer.y.data(), layer.out, false);
  }
  Report(state, layer);
}

void InputBf16(benchmark::State& state) {
  if (Skip(state)) return;
  Layer layer(state);
  PackedBf16 packed;
  packed.Pack(layer.w.data(), layer.out, layer.in, layer.out, true);
  for (auto _ : state) {
    Bf16Gemm({.m = layer.tokens,
              .a = layer.y.data(),
              .lda = layer.out,
              .b = &packed,
              .c = layer.x.data(),
              .ldc = layer.in});
  }
  Report(state, layer);
}

void InputFp32(benchmark::State& state) {
  Layer layer(state);
  for (auto _ : state) {
    Gemm({layer.tokens, layer.in, layer.out}, {layer.y.data(), layer.out},
         {layer.w.data(), layer.out, Op::kTranspose}, layer.x.data(), layer.in, false);
  }
  Report(state, layer);
}

void WeightBf16(benchmark::State& state) {
  if (Skip(state)) return;
  Layer layer(state);
  PackedBf16 packed;
  for (auto _ : state) {
    packed.Pack(layer.y.data(), layer.tokens, layer.out, layer.out, false);
    Bf16Gemm({.m = layer.in,
              .a = layer.x.data(),
              .lda = layer.in,
              .a_transposed = true,
              .b = &packed,
              .c = layer.w.data(),
              .ldc = layer.out,
              .accumulate = true});
  }
  Report(state, layer);
}

void WeightFp32(benchmark::State& state) {
  Layer layer(state);
  for (auto _ : state) {
    Gemm({layer.in, layer.out, layer.tokens}, {layer.x.data(), layer.in, Op::kTranspose},
         {layer.y.data(), layer.out}, layer.w.data(), layer.out, true);
  }
  Report(state, layer);
}

// Packing alone runs everywhere: what a weight costs per optimiser step.
void PackWeight(benchmark::State& state) {
  const std::int64_t in = state.range(0);
  const std::int64_t out = state.range(1);
  const bool transposed = state.range(2) != 0;
  const Buffer<float> w = Normals(in * out, 4);
  PackedBf16 packed;
  for (auto _ : state) {
    if (transposed) {
      packed.Pack(w.data(), out, in, out, true);
    } else {
      packed.Pack(w.data(), in, out, out, false);
    }
  }
  state.SetBytesProcessed(state.iterations() * in * out * 6);  // 4 read, 2 written
}

// {tokens, in, out}: a large feed-forward product, then the five of GPT-2 124M at 1024 tokens.
void TrainingShapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"tokens", "in", "out"});
  bench->Args({4096, 768, 3072});
  bench->Args({1024, 768, 2304});
  bench->Args({1024, 768, 768});
  bench->Args({1024, 768, 3072});
  bench->Args({1024, 3072, 768});
  bench->Args({1024, 768, 50257});
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(ForwardBf16)->Apply(TrainingShapes);
BENCHMARK(ForwardFp32)->Apply(TrainingShapes);
BENCHMARK(InputBf16)->Apply(TrainingShapes);
BENCHMARK(InputFp32)->Apply(TrainingShapes);
BENCHMARK(WeightBf16)->Apply(TrainingShapes);
BENCHMARK(WeightFp32)->Apply(TrainingShapes);
BENCHMARK(PackWeight)
    ->ArgNames({"in", "out", "transposed"})
    ->Args({768, 3072, 0})
    ->Args({768, 3072, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace clearhead
