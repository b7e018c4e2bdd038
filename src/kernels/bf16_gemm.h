// SPDX-License-Identifier: MIT
// Matrix products on Intel AMX tiles for training: fp32 in, fp32 out; both operands are rounded
// once to bf16 (nearest even, NaN kept), products are summed in fp32.
//
//   C[m,n] (+)= A[m,k] B[k,n] (+ bias[n] to every row)
//
// The three products of a linear layer y = x W + b, with x [rows,in], W [in,out]:
//   y  = x W + b    B = PackedBf16 of W
//   dx = dy W^T     B = PackedBf16 of W, transposed: source [n,k] = [in,out]
//   dW += x^T dy    B = PackedBf16 of dy; A = x with a_transposed: source [k,m] = [rows,in]
// Weights are packed once per optimiser step, dy once per use.
//
// Every element of C is summed in an order that depends on k alone: results are the same bits for
// any number of threads, and for any row count m around it. Like the hardware, the tile products
// read and write fp32 denormals as zero.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/buffer.h"

namespace clearhead {

// A B operand [k,n] as bf16 in tile order (amx/tile_layout.h), zero-padded to whole tiles.
class PackedBf16 {
 public:
  PackedBf16() = default;

  // Converts b: [k,n] row-major with row stride ldb, or [n,k] when transposed. Packing a shape that
  // fits into what was packed before allocates nothing. Runs on all threads, needs no AMX.
  void Pack(const float* b, std::int64_t k, std::int64_t n, std::int64_t ldb, bool transposed);

  std::int64_t k() const { return k_; }
  std::int64_t n() const { return n_; }
  // Panels of 32 columns, each contiguous: [panel][step of 32 k][2 tiles][16 k pairs][16
  // columns][2].
  const std::uint16_t* data() const { return storage_.data(); }

 private:
  Buffer<std::uint16_t> storage_;
  std::int64_t k_ = 0;
  std::int64_t n_ = 0;
};

struct Bf16GemmArgs {
  std::int64_t m = 0;  // k and n come from b

  const float* a = nullptr;  // [m,k], or [k,m] when a_transposed
  std::int64_t lda = 0;
  bool a_transposed = false;

  const PackedBf16* b = nullptr;

  float* c = nullptr;  // [m,n]; must not overlap a
  std::int64_t ldc = 0;
  bool accumulate = false;      // C += instead of C =
  const float* bias = nullptr;  // [n], or none
};

// Precondition: Bf16GemmAvailable().
void Bf16Gemm(const Bf16GemmArgs& args);

// Whether Bf16Gemm can run here, and why (not) in one sentence.
bool Bf16GemmAvailable();
std::string_view Bf16GemmReason();

namespace internal {

// For tests with the tile emulator: while one of these lives, Bf16Gemm counts as available although
// detection says no.
class ScopedEmulatedTiles {
 public:
  ScopedEmulatedTiles();
  ~ScopedEmulatedTiles();
  ScopedEmulatedTiles(const ScopedEmulatedTiles&) = delete;
  ScopedEmulatedTiles& operator=(const ScopedEmulatedTiles&) = delete;
};

}  // namespace internal
}  // namespace clearhead
