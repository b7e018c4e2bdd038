// SPDX-License-Identifier: MIT
#include "kernels/packed_matrix.h"

namespace clearhead {

void PackedMatrix::Pack(const WeightOperand& b, std::int64_t k, std::int64_t n, PackedFor how) {
  purpose = how;
  if (how == PackedFor::kF32) return panels.Pack(b, k, n);
  const bool transposed = b.op == Op::kTranspose;
  if (b.weight.is_f32()) return tiles.Pack(b.weight.f32(), k, n, b.stride, transposed);
  const std::int64_t rows = transposed ? n : k, columns = transposed ? k : n;
  Buffer<float> widened(rows * columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    b.weight.CopyTo(r * b.stride, columns, widened.data() + r * columns);
  }
  tiles.Pack(widened.data(), k, n, columns, transposed);
}

}  // namespace clearhead
