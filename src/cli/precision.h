// SPDX-License-Identifier: MIT
// --precision auto|fp32|bf16.
#pragma once

#include <string>

#include "cli/options.h"
#include "core/error.h"
#include "kernels/bf16_gemm.h"

namespace clearhead::cli {

inline void AddPrecision(Command* command, std::string* precision) {
  command
      ->add_option(
          "--precision", *precision,
          "Matrix products: fp32, bf16 (AMX tiles), auto = bf16 where the CPU has it (default: " +
              *precision + ")")
      ->check(IsMember({"auto", "fp32", "bf16"}));
}

inline bool UseBf16(const std::string& precision) {
  if (precision == "bf16" && !Bf16GemmAvailable()) {
    Fail("--precision bf16 cannot run here: {}; use fp32 or auto", Bf16GemmReason());
  }
  return precision != "fp32" && Bf16GemmAvailable();
}

}  // namespace clearhead::cli
