// SPDX-License-Identifier: MIT
#include "kernels/linear.h"

#include <algorithm>

#include "core/threads.h"
#include "kernels/bf16_gemm.h"
#include "kernels/column_sums.h"
#include "kernels/gemm.h"
#include "kernels/packed_matrix.h"

namespace clearhead {
namespace {

void AddColumnSums(std::int64_t rows, std::int64_t width, RowsOf<const float> dy, float* dbias) {
  float* const sums[] = {dbias};
  ReduceRows(rows, width, sums, [&](std::int64_t first, std::int64_t last, float* sum) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = dy.data + r * dy.stride;
      for (std::int64_t i = 0; i < width; ++i) sum[i] += row[i];
    }
  });
}

// W as an operand [in, out].
WeightOperand OperandOf(const Linear& layer) {
  return {layer.weight, layer.stride, layer.order == Order::kInOut ? Op::kNone : Op::kTranspose};
}

// The transposed operand [out, in].
WeightOperand TransposedOf(const Linear& layer) {
  return {layer.weight, layer.stride, layer.order == Order::kInOut ? Op::kTranspose : Op::kNone};
}

bool RoundsInputs(const Linear& layer) {
  return layer.rounds || (layer.packed != nullptr && layer.packed->rounds());
}

// C (+)= A B (+ bias) with a packed B, by the kernel that it was packed for.
void MultiplyPacked(std::int64_t rows, RowsOf<const float> a, const PackedMatrix& b,
                    const GemmOutput& out) {
  if (!b.rounds()) return Gemm(rows, {a.data, a.stride}, b.panels, out);
  Bf16Gemm({.m = rows,
            .a = a.data,
            .lda = a.stride,
            .b = &b.tiles,
            .c = out.c,
            .ldc = out.stride,
            .accumulate = out.accumulate,
            .bias = out.bias});
}

// Rows rounded to bf16, contiguous.
Buffer<float> Rounded(std::int64_t rows, std::int64_t width, RowsOf<const float> values) {
  Buffer<float> rounded(rows * width);
  for (std::int64_t i = 0; i < rows * width; ++i) {
    const float value = values.data[i / width * values.stride + i % width];
    rounded[i] = BFloat16ToFloat(FloatToBFloat16(value));
  }
  return rounded;
}

// The layer with its weights rounded to bf16, in `storage`.
Linear WithRoundedWeights(const Linear& layer, Buffer<float>* storage) {
  Buffer<float> matrix(layer.in * layer.out);
  CopyMatrix(layer, matrix.data());
  *storage = Rounded(layer.in, layer.out, {matrix.data(), layer.out});
  return MakeLinear(Weight(storage->data()), layer.bias, layer.in, layer.out, Order::kInOut);
}

}  // namespace

Linear MakeLinear(Weight weight, const float* bias, std::int64_t in, std::int64_t out,
                  Order order) {
  return {.weight = weight,
          .bias = bias,
          .in = in,
          .out = out,
          .order = order,
          .stride = order == Order::kInOut ? out : in};
}

Linear OutputsOf(const Linear& layer, std::int64_t first, std::int64_t count) {
  return {.weight = layer.weight + (layer.order == Order::kInOut ? first : first * layer.stride),
          .bias = layer.bias == nullptr ? nullptr : layer.bias + first,
          .in = layer.in,
          .out = count,
          .order = layer.order,
          .stride = layer.stride,
          .rounds = RoundsInputs(layer)};
}

Linear InputsOf(const Linear& layer, std::int64_t first, std::int64_t count) {
  return {.weight = layer.weight + (layer.order == Order::kInOut ? first * layer.stride : first),
          .bias = nullptr,
          .in = count,
          .out = layer.out,
          .order = layer.order,
          .stride = layer.stride,
          .rounds = RoundsInputs(layer)};
}

void CopyMatrix(const Linear& layer, float* out) {
  if (layer.order == Order::kInOut) {
    for (std::int64_t i = 0; i < layer.in; ++i) {
      layer.weight.CopyTo(i * layer.stride, layer.out, out + i * layer.out);
    }
    return;
  }
  Buffer<float> row(layer.in);
  for (std::int64_t o = 0; o < layer.out; ++o) {
    layer.weight.CopyTo(o * layer.stride, layer.in, row.data());
    for (std::int64_t i = 0; i < layer.in; ++i) out[i * layer.out + o] = row[i];
  }
}

void LinearForward(const Linear& layer, std::int64_t rows, RowsOf<const float> x, RowsOf<float> y) {
  const GemmOutput out{.c = y.data, .stride = y.stride, .bias = layer.bias};
  if (layer.packed != nullptr) return MultiplyPacked(rows, x, *layer.packed, out);
  if (layer.rounds) {
    Buffer<float> weights;
    const Buffer<float> rounded = Rounded(rows, layer.in, x);
    return LinearForward(WithRoundedWeights(layer, &weights), rows, {rounded.data(), layer.in}, y);
  }
  Gemm({rows, layer.out, layer.in}, {x.data, x.stride}, OperandOf(layer), out);
}

void LinearBackwardInput(const Linear& layer, std::int64_t rows, RowsOf<const float> dy,
                         RowsOf<float> dx, bool accumulate) {
  const GemmOutput out{.c = dx.data, .stride = dx.stride, .accumulate = accumulate};
  if (layer.packed_transposed != nullptr) {
    return MultiplyPacked(rows, dy, *layer.packed_transposed, out);
  }
  if (layer.rounds) {
    Buffer<float> weights;
    const Buffer<float> rounded = Rounded(rows, layer.out, dy);
    return LinearBackwardInput(WithRoundedWeights(layer, &weights), rows,
                               {rounded.data(), layer.out}, dx, accumulate);
  }
  Gemm({rows, layer.in, layer.out}, {dy.data, dy.stride}, TransposedOf(layer), out);
}

void LinearBackwardWeight(const Linear& layer, std::int64_t rows, RowsOf<const float> x,
                          RowsOf<const float> dy, PackedBf16* scratch, float* dw, float* dbias) {
  if (dbias != nullptr) AddColumnSums(rows, layer.out, dy, dbias);
  if (dw == nullptr) return;
  if (layer.rounds) {
    const Buffer<float> x_in = Rounded(rows, layer.in, x), dy_in = Rounded(rows, layer.out, dy);
    Linear plain = layer;
    plain.rounds = false;
    return LinearBackwardWeight(plain, rows, {x_in.data(), layer.in}, {dy_in.data(), layer.out},
                                nullptr, dw, nullptr);
  }
  // The stored matrix is [m, n]: dW += a^T b with a [rows, m], b [rows, n].
  const bool in_out = layer.order == Order::kInOut;
  const RowsOf<const float> a = in_out ? x : dy, b = in_out ? dy : x;
  const std::int64_t m = in_out ? layer.in : layer.out, n = in_out ? layer.out : layer.in;
  if (layer.packed != nullptr && layer.packed->rounds()) {
    scratch->Pack(b.data, rows, n, b.stride, /*transposed=*/false);
    Bf16Gemm({.m = m,
              .a = a.data,
              .lda = a.stride,
              .a_transposed = true,
              .b = scratch,
              .c = dw,
              .ldc = layer.stride,
              .accumulate = true});
  } else {
    Gemm({m, n, rows}, {a.data, a.stride, Op::kTranspose}, {b.data, b.stride}, dw, layer.stride,
         /*accumulate=*/true);
  }
}

}  // namespace clearhead
