// SPDX-License-Identifier: MIT
// What a thread takes of a matrix product: a run of rows and a run of panels of C. (A header of its
// own because gemm.cc is compiled several times, once per instruction set.)
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/gemm_by_panels.h"

namespace clearhead {

struct GemmTask {
  const GemmShape* shape;
  const GemmOperand* a;
  const WeightOperand* b;                                          // or
  const PackedPanels* packed;                                      // this
  const GemmOutput* out;                                           // or
  const std::function<void(const FinishedPanel&)>* use = nullptr;  // this
  std::int64_t most_depth = 0;                                     // of k at a time
  std::int64_t first_row = 0, rows = 0, first_panel = 0, last_panel = 0;
  bool copies_rows = false;
  float* row_copy = nullptr;    // [chunk of k][rows][of the chunk], if it copies
  float* panel_copy = nullptr;  // two chunks of a panel
  float* sums = nullptr;        // [rows][kPanelColumns]
};

}  // namespace clearhead
