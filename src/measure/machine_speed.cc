// SPDX-License-Identifier: MIT
#include "measure/machine_speed.h"

#include <atomic>

#include "core/threads.h"
#include "kernels/bf16_gemm.h"
#include "kernels/gemm.h"
#include "kernels/machine_limits.h"
#include "measure/bench_inputs.h"

namespace clearhead {
namespace {

constexpr std::int64_t kM = 4096, kK = 768, kN = 3072;
constexpr double kFlops = 2.0 * kM * kN * kK;

}  // namespace

double SgemmSpeed(const Budget& budget) {
  const Buffer<float> a = RandomValues(kM * kK), b = RandomValues(kK * kN);
  Buffer<float> c(kM * kN);
  return kFlops / BestSeconds(budget, [&] {
           Gemm({kM, kN, kK}, {a.data(), kK}, {b.data(), kN}, c.data(), kN, false);
         });
}

double Bf16Speed(const Budget& budget) {
  const Buffer<float> a = RandomValues(kM * kK), b = RandomValues(kK * kN);
  Buffer<float> c(kM * kN);
  PackedBf16 packed;
  packed.Pack(b.data(), kK, kN, kN, false);
  return kFlops / BestSeconds(budget, [&] {
           Bf16Gemm({.m = kM, .a = a.data(), .lda = kK, .b = &packed, .c = c.data(), .ldc = kN});
         });
}

double MultiplyAddSpeed(const Budget& budget) {
  constexpr std::int64_t kRounds = 2'000'000;
  const double count = static_cast<double>(Threads()) * static_cast<double>(kRounds) *
                       static_cast<double>(MultiplyAddsPerRound());
  std::atomic<float> out = 0.0f;
  return 2.0 * count /
         BestSeconds(budget, [&] { OnEachThread([&] { out = MultiplyAddRounds(kRounds); }); });
}

void ReadOnce(std::int64_t rows, const float* values, float* sums) {
  ParallelRanges(rows, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r)
      sums[r] = SumOf(values + r * kReadWidth, kReadWidth);
  });
}

double ReadSpeed(std::span<const float> values, const Budget& budget) {
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / kReadWidth;
  Buffer<float> sums(rows);
  const double seconds = BestSeconds(budget, [&] { ReadOnce(rows, values.data(), sums.data()); });
  return static_cast<double>(rows * kReadWidth) * sizeof(float) / seconds;
}

}  // namespace clearhead
