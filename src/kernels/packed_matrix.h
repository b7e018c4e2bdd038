// SPDX-License-Identifier: MIT
// A right-hand side that is multiplied with again and again, packed for one of the two kernels:
// panels for exact fp32 products (gemm.h), or tiles for products in bf16 (bf16_gemm.h).
#pragma once

#include <cstdint>

#include "kernels/bf16_gemm.h"
#include "kernels/gemm.h"

namespace clearhead {

enum class PackedFor { kF32, kBf16 };

struct PackedMatrix {
  PackedPanels panels;  // one of the two is filled
  PackedBf16 tiles;
  PackedFor purpose = PackedFor::kF32;

  // op(B) [k,n]. Packing the same shape again allocates nothing.
  void Pack(const WeightOperand& b, std::int64_t k, std::int64_t n, PackedFor how);

  bool rounds() const { return purpose == PackedFor::kBf16; }
};

}  // namespace clearhead
