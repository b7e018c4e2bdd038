// SPDX-License-Identifier: MIT
// fp32 matrix products, row-major:
//
//   C[m,n] = start + op(A)[m,k] op(B)[k,n]      start: nothing, C itself, or a bias[n] for every
//   row
//
// B is a plain matrix, copied into the order of the kernel a piece at a time as it is multiplied,
// or one that was packed into that order once (weights that are used again and again). Either may
// be stored in 16 bits: it is widened exactly, and multiplied in fp32.
//
// Every element of C is summed in an order that depends on k alone (product_layout.h): the same
// bits for any number of threads, for any rows and columns around it, packed or not.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "kernels/weight.h"

namespace clearhead {

enum class Op { kNone, kTranspose };

// A matrix operand: op(data) where data is row-major with `stride` elements between rows.
struct GemmOperand {
  const float* data;
  std::int64_t stride;
  Op op = Op::kNone;
};

// A right-hand side that may be stored in 16 bits.
struct WeightOperand {
  WeightOperand(const Weight& stored, std::int64_t row_stride, Op how = Op::kNone)
      : weight(stored), stride(row_stride), op(how) {}
  WeightOperand(const GemmOperand& plain)  // NOLINT(google-explicit-constructor): one is the other
      : weight(plain.data), stride(plain.stride), op(plain.op) {}

  Weight weight;
  std::int64_t stride;
  Op op;
};

struct GemmShape {
  std::int64_t m, n, k;
};

// Where a product goes, and what it starts from.
struct GemmOutput {
  float* c;  // [m,n]; must not overlap the operands
  std::int64_t stride;
  bool accumulate = false;      // C += instead of C =
  const float* bias = nullptr;  // [n], added to every row; not together with accumulate
};

// op(B) [k,n] in the kernel's order, in the type that it is stored in.
class PackedPanels {
 public:
  PackedPanels() = default;

  // Packing a shape that fits into what was packed before allocates nothing. Runs on all threads.
  void Pack(const WeightOperand& b, std::int64_t k, std::int64_t n);

  bool empty() const { return storage_.size() == 0; }
  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }
  DType dtype() const { return dtype_; }
  const std::byte* data() const { return storage_.data(); }  // [panel][k][kPanelColumns]
  std::int64_t bytes() const { return storage_.size(); }

 private:
  Buffer<std::byte> storage_;
  std::int64_t k_ = 0, n_ = 0;
  DType dtype_ = DType::kF32;
};

// The products, on the threads of the scope.
void Gemm(const GemmShape& shape, const GemmOperand& a, const WeightOperand& b,
          const GemmOutput& out);
void Gemm(std::int64_t m, const GemmOperand& a, const PackedPanels& b, const GemmOutput& out);

// C[m,n] = op(A) op(B), or C += ... if accumulate.
inline void Gemm(const GemmShape& shape, const GemmOperand& a, const GemmOperand& b, float* c,
                 std::int64_t c_stride, bool accumulate) {
  Gemm(shape, a, b, {.c = c, .stride = c_stride, .accumulate = accumulate});
}

}  // namespace clearhead
