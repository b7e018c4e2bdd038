// SPDX-License-Identifier: MIT
// A product that is looked at and not kept: of the pre-activations of thousands of features a few
// fire, and writing the others to memory takes longer than finding them.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/gemm.h"

namespace clearhead {

// Some columns of some rows of C, summed: values[rows][columns], rows `stride` apart.
struct FinishedPanel {
  std::int64_t first_row, rows, first_column, columns;
  const float* values;
  std::int64_t stride;
};

// C = A B without a C: `use` sees every part of it once, while it is in the cache, and must not
// multiply itself. On the calling thread alone; a row's columns come in ascending order.
void GemmByPanels(std::int64_t m, const GemmOperand& a, const PackedPanels& b,
                  const std::function<void(const FinishedPanel&)>& use);

}  // namespace clearhead
