// SPDX-License-Identifier: MIT
#include "kernels/linear.h"

#include <algorithm>

#include "core/threads.h"
#include "kernels/attention_scratch.h"
#include "kernels/bf16_gemm.h"
#include "kernels/column_sums.h"
#include "kernels/gemm.h"

namespace clearhead {
namespace {

void FillRows(std::int64_t rows, std::int64_t width, const float* row, RowsOf<float> out) {
  ParallelRanges(
      rows,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = first; r < last; ++r) {
          std::copy(row, row + width, out.data + r * out.stride);
        }
      },
      LeastRows(width));
}

void AddColumnSums(std::int64_t rows, std::int64_t width, RowsOf<const float> dy, float* dbias) {
  float* const sums[] = {dbias};
  ReduceRows(rows, width, sums, [&](std::int64_t first, std::int64_t last, float* sum) {
    for (std::int64_t r = first; r < last; ++r) {
      const float* row = dy.data + r * dy.stride;
      for (std::int64_t i = 0; i < width; ++i) sum[i] += row[i];
    }
  });
}

// W as an fp32 operand [in, out].
GemmOperand OperandOf(const Linear& layer) {
  return {layer.weight.f32(), layer.stride,
          layer.order == Order::kInOut ? Op::kNone : Op::kTranspose};
}

// The transposed operand [out, in].
GemmOperand TransposedOf(const Linear& layer) {
  return {layer.weight.f32(), layer.stride,
          layer.order == Order::kInOut ? Op::kTranspose : Op::kNone};
}

// The stored matrix of a piece of a 16-bit layer, widened, as an fp32 layer without bias.
struct Widened {};
Linear Widen(const Linear& piece) {
  const std::int64_t rows = piece.order == Order::kInOut ? piece.in : piece.out;
  const std::int64_t columns = piece.order == Order::kInOut ? piece.out : piece.in;
  float* values = ThreadScratch<float, Widened>(rows * columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    piece.weight.CopyTo(r * piece.stride, columns, values + r * columns);
  }
  return MakeLinear(Weight(values), nullptr, piece.in, piece.out, piece.order);
}

// Pieces of `extent` of which each makes a widened matrix of about a quarter of a megabyte: it
// stays in the second-level cache between widening and product.
template <typename Body>
void ForPieces(std::int64_t extent, std::int64_t other, const Body& body) {
  const std::int64_t piece =
      std::max<std::int64_t>(16, (1 << 16) / std::max<std::int64_t>(other, 1));
  ParallelFor((extent + piece - 1) / piece,
              [&](std::int64_t i) { body(i * piece, std::min(piece, extent - i * piece)); });
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

bool Contiguous(const Linear& layer) {
  return layer.stride == (layer.order == Order::kInOut ? layer.out : layer.in);
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
          .rounds = layer.rounds || layer.packed != nullptr};
}

Linear InputsOf(const Linear& layer, std::int64_t first, std::int64_t count) {
  return {.weight = layer.weight + (layer.order == Order::kInOut ? first * layer.stride : first),
          .bias = nullptr,
          .in = count,
          .out = layer.out,
          .order = layer.order,
          .stride = layer.stride,
          .rounds = layer.rounds || layer.packed != nullptr};
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
  if (layer.packed != nullptr) {
    return Bf16Gemm({.m = rows,
                     .a = x.data,
                     .lda = x.stride,
                     .b = layer.packed,
                     .c = y.data,
                     .ldc = y.stride,
                     .bias = layer.bias});
  }
  if (layer.rounds) {
    Buffer<float> weights;
    const Buffer<float> rounded = Rounded(rows, layer.in, x);
    return LinearForward(WithRoundedWeights(layer, &weights), rows, {rounded.data(), layer.in}, y);
  }
  if (!layer.weight.is_f32()) {
    return ForPieces(layer.out, layer.in, [&](std::int64_t first, std::int64_t count) {
      Linear piece = OutputsOf(layer, first, count);
      const float* bias = piece.bias;
      piece = Widen(piece);
      piece.bias = bias;
      LinearForward(piece, rows, x, {y.data + first, y.stride});
    });
  }
  if (rows == 1 && Contiguous(layer)) {  // a token at a time: at the speed of memory
    if (layer.order == Order::kInOut) {
      return MatVec(layer.in, layer.out, x.data, layer.weight.f32(), layer.bias, y.data);
    }
    MatVecT(layer.out, layer.in, layer.weight.f32(), x.data, y.data);
    for (std::int64_t i = 0; layer.bias != nullptr && i < layer.out; ++i) {
      y.data[i] += layer.bias[i];
    }
    return;
  }
  if (layer.bias != nullptr) FillRows(rows, layer.out, layer.bias, y);
  Gemm({rows, layer.out, layer.in}, {x.data, x.stride}, OperandOf(layer), y.data, y.stride,
       /*accumulate=*/layer.bias != nullptr);
}

void LinearBackwardInput(const Linear& layer, std::int64_t rows, RowsOf<const float> dy,
                         RowsOf<float> dx, bool accumulate) {
  if (layer.packed_transposed != nullptr) {
    return Bf16Gemm({.m = rows,
                     .a = dy.data,
                     .lda = dy.stride,
                     .b = layer.packed_transposed,
                     .c = dx.data,
                     .ldc = dx.stride,
                     .accumulate = accumulate});
  }
  if (layer.rounds) {
    Buffer<float> weights;
    const Buffer<float> rounded = Rounded(rows, layer.out, dy);
    return LinearBackwardInput(WithRoundedWeights(layer, &weights), rows,
                               {rounded.data(), layer.out}, dx, accumulate);
  }
  if (!layer.weight.is_f32()) {
    return ForPieces(layer.in, layer.out, [&](std::int64_t first, std::int64_t count) {
      LinearBackwardInput(Widen(InputsOf(layer, first, count)), rows, dy,
                          {dx.data + first, dx.stride}, accumulate);
    });
  }
  Gemm({rows, layer.in, layer.out}, {dy.data, dy.stride}, TransposedOf(layer), dx.data, dx.stride,
       accumulate);
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
  if (layer.packed != nullptr) {
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
