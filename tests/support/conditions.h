// SPDX-License-Identifier: MIT
// What scripts/margins varies between runs of one test program, from the environment:
//   CLEARHEAD_TEST_SEED      a number; tests of learning draw everything from it (1)
//   CLEARHEAD_TEST_THREADS   threads of the test (as many as the program would take)
//   CLEARHEAD_TEST_TARGET    the best instruction set that Highway may use, e.g. AVX2 (all)
// Only test programs read these. The last two are applied before the first test of a program that
// compiles conditions.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace clearhead {

std::uint64_t TestSeed();

// The words of a command with the environment's --seed and --threads in place of its own.
std::vector<std::string> UnderConditions(std::vector<std::string> command);

// The same with the environment's --threads alone: commands whose seed is part of what is measured.
std::vector<std::string> UnderThreads(std::vector<std::string> command);

}  // namespace clearhead
