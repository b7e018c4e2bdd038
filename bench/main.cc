// SPDX-License-Identifier: MIT
// The benchmarks run as the program does: with a pool of all cores. CLEARHEAD_BENCH_TARGET names
// the best instruction set that Highway may use, e.g. AVX2: what a CPU without more would do.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/threads.h"

namespace {

// Highway's bits are ordered: a better instruction set has a lower one. 0: there is none.
std::int64_t TargetsUpTo(std::string_view name) {
  for (std::int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    if (name == hwy::TargetName(rest & -rest)) return rest;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (const char* target = std::getenv("CLEARHEAD_BENCH_TARGET"); target != nullptr) {
    const std::int64_t targets = TargetsUpTo(target);
    if (targets == 0) {
      std::fprintf(stderr, "CLEARHEAD_BENCH_TARGET: this CPU or Highway has no target %s\n",
                   target);
      return 1;
    }
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  }
  clearhead::ThreadPool pool(clearhead::AvailableCores());
  const clearhead::ThreadScope scope(&pool);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
