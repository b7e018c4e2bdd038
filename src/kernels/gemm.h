// SPDX-License-Identifier: MIT
// fp32 matrix products, row-major.
//   Gemm      C[m,n] (+)= op(A) op(B)     OpenBLAS, shared out among our threads
//   MatVec    y[n] = x[k] W[k,n] + bias   our own: they read every weight once, at the speed of
//   MatVecT   y[n] = W[n,k] x[k]          memory, which the library's gemv does not reach
#pragma once

#include <cstdint>

namespace clearhead {

enum class Op { kNone, kTranspose };

// A matrix operand: op(data) where data is row-major with `stride` elements between rows.
struct GemmOperand {
  const float* data;
  std::int64_t stride;
  Op op = Op::kNone;
};

struct GemmShape {
  std::int64_t m, n, k;
};

// C[m,n] = op(A)[m,k] op(B)[k,n], or C += ... if accumulate. Threads: those of the scope. Sums over
// k are in fp32 in OpenBLAS's order.
void Gemm(const GemmShape& shape, const GemmOperand& a, const GemmOperand& b, float* c,
          std::int64_t c_stride, bool accumulate);

// y[n] = bias[n] + sum_k x[k] W[k,n];  W contiguous [k,n]; bias may be null.
void MatVec(std::int64_t k, std::int64_t n, const float* x, const float* w, const float* bias,
            float* y);

// y[n] = sum_k W[n,k] x[k];  W contiguous [n,k].
void MatVecT(std::int64_t n, std::int64_t k, const float* w, const float* x, float* y);

}  // namespace clearhead
