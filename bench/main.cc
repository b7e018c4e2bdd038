// SPDX-License-Identifier: MIT
// The benchmarks run as the program does: with a pool of all cores.
#include <benchmark/benchmark.h>

#include "core/threads.h"

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  clearhead::ThreadPool pool(clearhead::AvailableCores());
  const clearhead::ThreadScope scope(&pool);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
