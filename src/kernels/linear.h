// SPDX-License-Identifier: MIT
// A linear layer y = x W + bias with W [in, out], stored as [in, out] or transposed.
//
//   forward            y[r,out]    = x[r,in] W[in,out] + bias
//   backward, input    dx[r,in]    = dy[r,out] W^T
//   backward, weight   dW[in,out] += x^T dy,   dbias[out] += sum over rows of dy
//
// Products run in fp32, also where the weights are stored in 16 bits: they are widened as they are
// used. Weights that are packed (packed_matrix.h) are multiplied as they were packed: in fp32, with
// the same bits as without packing, or in bf16 with fp32 sums.
#pragma once

#include <cstdint>

#include "kernels/gemm.h"
#include "kernels/weight.h"

namespace clearhead {

class PackedBf16;
struct PackedMatrix;

enum class Order { kInOut, kOutIn };  // which index is the row of the stored matrix

struct Linear {
  Weight weight;
  const float* bias = nullptr;  // [out], or null
  std::int64_t in = 0, out = 0;
  Order order = Order::kInOut;
  std::int64_t stride = 0;                          // between rows of the stored matrix
  const PackedMatrix* packed = nullptr;             // W,   for forward
  const PackedMatrix* packed_transposed = nullptr;  // W^T, for the input gradient
  bool rounds = false;  // a part of a layer that runs in bf16: inputs are rounded as there
};

// A whole matrix.
Linear MakeLinear(Weight weight, const float* bias, std::int64_t in, std::int64_t out, Order order);

// The layer that makes only outputs [first, first + count), or reads only those inputs (without
// bias): what one head has of a layer. A part of a layer that is packed for bf16 is not, but rounds
// its inputs all the same: looking at a head changes no precision.
Linear OutputsOf(const Linear& layer, std::int64_t first, std::int64_t count);
Linear InputsOf(const Linear& layer, std::int64_t first, std::int64_t count);

// W as a contiguous fp32 matrix [in, out].
void CopyMatrix(const Linear& layer, float* out);

// Rows of a matrix that may be part of a wider one.
template <typename T>
struct RowsOf {
  T* data;
  std::int64_t stride;
};

// Overwrites y.
void LinearForward(const Linear& layer, std::int64_t rows, RowsOf<const float> x, RowsOf<float> y);

// Overwrites dx, or adds to it.
void LinearBackwardInput(const Linear& layer, std::int64_t rows, RowsOf<const float> dy,
                         RowsOf<float> dx, bool accumulate = false);

// Adds to dw, which is stored as the weight is, and dbias (either may be null). `scratch` holds dy
// packed for the tiles when the layer runs in bf16 (else null).
void LinearBackwardWeight(const Linear& layer, std::int64_t rows, RowsOf<const float> x,
                          RowsOf<const float> dy, PackedBf16* scratch, float* dw, float* dbias);

// The same on contiguous rows.
inline void LinearForward(const Linear& layer, std::int64_t rows, const float* x, float* y) {
  LinearForward(layer, rows, {x, layer.in}, {y, layer.out});
}
inline void LinearBackwardInput(const Linear& layer, std::int64_t rows, const float* dy,
                                float* dx) {
  LinearBackwardInput(layer, rows, {dy, layer.out}, {dx, layer.in});
}
inline void LinearBackwardWeight(const Linear& layer, std::int64_t rows, const float* x,
                                 const float* dy, PackedBf16* scratch, float* dw, float* dbias) {
  LinearBackwardWeight(layer, rows, {x, layer.in}, {dy, layer.out}, scratch, dw, dbias);
}

}  // namespace clearhead
