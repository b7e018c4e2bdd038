// SPDX-License-Identifier: MIT
// Which implementation of each kind of kernel runs on this machine, and why.
#pragma once

#include <string>
#include <vector>

namespace clearhead {

struct KernelChoice {
  std::string kernel;  // "fp32 products"
  std::string runs;    // "Highway AVX3"
  std::string reason;
};

std::vector<KernelChoice> KernelChoices();

}  // namespace clearhead
