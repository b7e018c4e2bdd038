// SPDX-License-Identifier: MIT
#include "kernels/linear.h"

#include <algorithm>

#include "core/threads.h"
#include "kernels/bf16_gemm.h"
#include "kernels/column_sums.h"
#include "kernels/gemm.h"

namespace clearhead {
namespace {

void FillRows(std::int64_t rows, std::int64_t width, const float* row, float* out) {
  ParallelRanges(
      rows,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = first; r < last; ++r) std::copy(row, row + width, out + r * width);
      },
      LeastRows(width));
}

void AddColumnSums(std::int64_t rows, std::int64_t width, const float* dy, float* dbias) {
  float* const sums[] = {dbias};
  ReduceRows(rows, width, sums, [&](std::int64_t first, std::int64_t last, float* sum) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = dy + r * width;
      for (std::int64_t i = 0; i < width; ++i) sum[i] += row[i];
    }
  });
}

}  // namespace

void LinearForward(const Linear& layer, std::int64_t rows, const float* x, float* y) {
  if (layer.packed != nullptr) {
    return Bf16Gemm({.m = rows,
                     .a = x,
                     .lda = layer.in,
                     .b = layer.packed,
                     .c = y,
                     .ldc = layer.out,
                     .bias = layer.bias});
  }
  if (rows == 1) return MatVec(layer.in, layer.out, x, layer.weight, layer.bias, y);
  if (layer.bias != nullptr) FillRows(rows, layer.out, layer.bias, y);
  Gemm({rows, layer.out, layer.in}, {x, layer.in}, {layer.weight, layer.out}, y, layer.out,
       /*accumulate=*/layer.bias != nullptr);
}

void LinearBackwardInput(const Linear& layer, std::int64_t rows, const float* dy, float* dx) {
  if (layer.packed_transposed != nullptr) {
    return Bf16Gemm({.m = rows,
                     .a = dy,
                     .lda = layer.out,
                     .b = layer.packed_transposed,
                     .c = dx,
                     .ldc = layer.in});
  }
  Gemm({rows, layer.in, layer.out}, {dy, layer.out}, {layer.weight, layer.out, Op::kTranspose}, dx,
       layer.in, /*accumulate=*/false);
}

void LinearBackwardWeight(const Linear& layer, std::int64_t rows, const float* x, const float* dy,
                          PackedBf16* scratch, float* dw, float* dbias) {
  if (layer.packed != nullptr) {
    scratch->Pack(dy, rows, layer.out, layer.out, /*transposed=*/false);
    Bf16Gemm({.m = layer.in,
              .a = x,
              .lda = layer.in,
              .a_transposed = true,
              .b = scratch,
              .c = dw,
              .ldc = layer.out,
              .accumulate = true});
  } else {
    Gemm({layer.in, layer.out, rows}, {x, layer.in, Op::kTranspose}, {dy, layer.out}, dw, layer.out,
         /*accumulate=*/true);
  }
  if (dbias != nullptr) AddColumnSums(rows, layer.out, dy, dbias);
}

}  // namespace clearhead
