// SPDX-License-Identifier: MIT
// What this CPU and its operating system let us use. Detection runs at the build baseline, once; on
// anything but x86-64 every answer is no.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace clearhead {

struct CpuFeatures {
  std::string model;  // as the CPU names itself, e.g. "Intel(R) Xeon(R) Platinum 8488C"

  // Present in the CPU, and their registers saved by the operating system.
  bool avx2 = false;
  bool fma = false;
  bool avx512f = false;
  bool avx512bf16 = false;
  bool amx_tile = false;
  bool amx_bf16 = false;

  // bf16 tile products may run: both AMX features, and this process may use the tile state.
  bool tiles_usable = false;
  std::string tiles_reason;  // one sentence, whatever the answer; "AMX bf16: this CPU has no AMX"
};

// The first call asks the CPU, and asks the operating system for the tile state on behalf of the
// whole process (threads that run already included).
const CpuFeatures& Cpu();

// The names of the SIMD features that are present, for people: {"avx2", "fma"}.
std::vector<std::string_view> SimdFeatureNames(const CpuFeatures& features);

}  // namespace clearhead
