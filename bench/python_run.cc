// SPDX-License-Identifier: MIT
// python_run MODEL TOKENS: the C++ side of scripts/bench-python. Prints the seconds of each run of
// the same call that the Python side makes, one for each line that it reads.
#include <clearhead/clearhead.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    namespace ch = clearhead::api;
    const ch::Model model = ch::Model::Load(argv[1]);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(std::atoi(argv[2])), 5);
    for (std::string line; std::getline(std::cin, line);) {
      const auto begun = std::chrono::steady_clock::now();
      {
        const ch::Run run = model.Run(ids, {.taps = "blocks.*.attn.hook_pattern"});
        if (run.taps.empty()) return 1;
      }
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
      std::printf("%.9f\n", seconds.count());
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "python_run: %s\n", error.what());
    return 1;
  }
}
