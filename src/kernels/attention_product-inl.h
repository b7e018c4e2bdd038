// SPDX-License-Identifier: MIT
// Products of cache-sized blocks, dense and sparse. Compiled once per instruction set (Highway).
//
// Every element is accumulated in one chain over its depth, in order. Therefore a result does not
// depend on how work is cut into blocks, and skipping zero weights (SparseWeightedSum) changes no
// bit.
#if defined(CLEARHEAD_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_ATTENTION_PRODUCT_INL_H_
#undef CLEARHEAD_ATTENTION_PRODUCT_INL_H_
#else
#define CLEARHEAD_ATTENTION_PRODUCT_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {

// C[6][kPanel] (+)= sum_k A(m, k) B[k][kPanel] with A(m, k) = a[m * a_row + k * a_depth].
HWY_INLINE void MultiplyTile(std::int64_t depth, const float* HWY_RESTRICT a, std::int64_t a_row,
                             std::int64_t a_depth, const float* HWY_RESTRICT b,
                             float* HWY_RESTRICT c, std::int64_t c_row, bool accumulate) {
  const FloatTag d;
  float* c0 = c;
  float* c1 = c0 + c_row;
  float* c2 = c1 + c_row;
  float* c3 = c2 + c_row;
  float* c4 = c3 + c_row;
  float* c5 = c4 + c_row;
  Vector s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00;
  Vector s30 = s00, s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00;
  if (accumulate) {
    s00 = hn::LoadU(d, c0), s01 = hn::LoadU(d, c0 + kLanes);
    s10 = hn::LoadU(d, c1), s11 = hn::LoadU(d, c1 + kLanes);
    s20 = hn::LoadU(d, c2), s21 = hn::LoadU(d, c2 + kLanes);
    s30 = hn::LoadU(d, c3), s31 = hn::LoadU(d, c3 + kLanes);
    s40 = hn::LoadU(d, c4), s41 = hn::LoadU(d, c4 + kLanes);
    s50 = hn::LoadU(d, c5), s51 = hn::LoadU(d, c5 + kLanes);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = hn::LoadU(d, b);
    const Vector b1 = hn::LoadU(d, b + kLanes);
    Vector x = hn::Set(d, a[0]);
    s00 = hn::MulAdd(x, b0, s00);
    s01 = hn::MulAdd(x, b1, s01);
    x = hn::Set(d, a[a_row]);
    s10 = hn::MulAdd(x, b0, s10);
    s11 = hn::MulAdd(x, b1, s11);
    x = hn::Set(d, a[2 * a_row]);
    s20 = hn::MulAdd(x, b0, s20);
    s21 = hn::MulAdd(x, b1, s21);
    x = hn::Set(d, a[3 * a_row]);
    s30 = hn::MulAdd(x, b0, s30);
    s31 = hn::MulAdd(x, b1, s31);
    x = hn::Set(d, a[4 * a_row]);
    s40 = hn::MulAdd(x, b0, s40);
    s41 = hn::MulAdd(x, b1, s41);
    x = hn::Set(d, a[5 * a_row]);
    s50 = hn::MulAdd(x, b0, s50);
    s51 = hn::MulAdd(x, b1, s51);
    a += a_depth;
    b += kPanel;
  }
  hn::StoreU(s00, d, c0), hn::StoreU(s01, d, c0 + kLanes);
  hn::StoreU(s10, d, c1), hn::StoreU(s11, d, c1 + kLanes);
  hn::StoreU(s20, d, c2), hn::StoreU(s21, d, c2 + kLanes);
  hn::StoreU(s30, d, c3), hn::StoreU(s31, d, c3 + kLanes);
  hn::StoreU(s40, d, c4), hn::StoreU(s41, d, c4 + kLanes);
  hn::StoreU(s50, d, c5), hn::StoreU(s51, d, c5 + kLanes);
}

// scores[rows][columns] = a[rows][depth] b, where some row of the tile sees the column.
inline HWY_NOINLINE void ScoreProduct(const CausalBlock& block, std::int64_t depth, const float* a,
                                      std::int64_t a_row, const float* panels, float* scores,
                                      std::int64_t score_row) {
  const std::int64_t visible = block.Visible(block.rows - 1);
  for (std::int64_t column = 0; column < visible; column += kPanel, panels += depth * kPanel) {
    for (std::int64_t m = 0; m < block.rows; m += kTileRows) {
      if (block.TileVisible(m) <= column) continue;
      MultiplyTile(depth, a + m * a_row, a_row, 1, panels, scores + m * score_row + column,
                   score_row, false);
    }
  }
}

// sum[rows][width] += weights[rows][columns] b[columns][width]; `skip`, if set, says which tiles of
// rows to leave out. A panel of b stays in the first-level cache for all tiles if columns <=
// kKeyTile.
inline HWY_NOINLINE void WeightedSum(const CausalBlock& block, const float* weights,
                                     std::int64_t weight_row, const float* panels,
                                     std::int64_t panel_stride, std::int64_t width, float* sum,
                                     const bool* skip = nullptr) {
  for (std::int64_t c = 0; c < width; c += kPanel, panels += panel_stride) {
    for (std::int64_t m = 0; m < block.rows; m += kTileRows) {
      if (skip != nullptr && skip[m / kTileRows]) continue;
      MultiplyTile(block.TileVisible(m), weights + m * weight_row, weight_row, 1, panels,
                   sum + m * width + c, width, true);
    }
  }
}

// sum[columns][width] += weights^T b[rows][width]
inline HWY_NOINLINE void TransposedWeightedSum(const CausalBlock& block, const float* weights,
                                               std::int64_t weight_row, const float* panels,
                                               std::int64_t panel_stride, std::int64_t width,
                                               float* sum) {
  const std::int64_t visible = block.Visible(block.rows - 1);
  for (std::int64_t j = 0; j < visible; j += kTileRows) {
    const std::int64_t start = std::max<std::int64_t>(0, j + 1 - block.first_visible);
    const float* panel = panels + start * kPanel;
    for (std::int64_t c = 0; c < width; c += kPanel, panel += panel_stride) {
      MultiplyTile(block.rows - start, weights + start * weight_row + j, 1, weight_row, panel,
                   sum + j * width + c, width, true);
    }
  }
}

// sum[columns] = sum over rows of weights[row] b[row][columns], for a single row of weights: b is
// read where it is, since copying it into panels costs more than the product. `sum` has room for
// whole vectors.
template <int kVectors>
HWY_INLINE void RowSumPart(const float* weights, std::int64_t rows, const float* b,
                           std::int64_t b_row, float* sum) {
  const FloatTag d;
  Vector sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (std::int64_t r = 0; r < rows; ++r, b += b_row) {
    const Vector w = hn::Set(d, weights[r]);
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(w, hn::LoadU(d, b + v * kLanes), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, sum + v * kLanes);
}
inline HWY_NOINLINE void RowSum(const float* weights, std::int64_t rows, const float* b,
                                std::int64_t b_row, std::int64_t columns, float* sum) {
  const FloatTag d;
  std::int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    RowSumPart<4>(weights, rows, b + c, b_row, sum + c);
  }
  for (; c + kLanes <= columns; c += kLanes) RowSumPart<1>(weights, rows, b + c, b_row, sum + c);
  if (c == columns) return;
  HWY_ALIGN float rest[kLanes] = {};
  Vector last = hn::Zero(d);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy_n(b + r * b_row + c, columns - c, rest);
    last = hn::MulAdd(hn::Set(d, weights[r]), hn::Load(d, rest), last);
  }
  hn::StoreU(last, d, sum + c);
}

// Columns of the nonzero weights of a row, in order; returns their number. The row has its zero
// tail.
inline HWY_NOINLINE std::int64_t ListNonzero(const float* row, std::int64_t count,
                                             std::int32_t* columns) {
  const FloatTag d;
  std::int64_t found = 0;
  for (std::int64_t j = 0; j < count; j += kPanel) {
    const Vector w0 = hn::LoadU(d, row + j), w1 = hn::LoadU(d, row + j + kLanes);
    if (hn::AllTrue(d, hn::Eq(hn::Or(w0, w1), hn::Zero(d)))) continue;  // most, when few are open
    std::uint8_t bytes[2][8] = {};
    hn::StoreMaskBits(d, hn::Ne(w0, hn::Zero(d)), bytes[0]);
    hn::StoreMaskBits(d, hn::Ne(w1, hn::Zero(d)), bytes[1]);
    std::uint64_t low, high;
    std::memcpy(&low, bytes[0], 8);
    std::memcpy(&high, bytes[1], 8);
    for (std::uint64_t bits = low | high << kLanes; bits != 0; bits &= bits - 1) {
      columns[found++] = static_cast<std::int32_t>(j + std::countr_zero(bits));
    }
  }
  return found;
}

// sum[width] += sum over listed columns of weights[column] b[column][width]
inline HWY_NOINLINE void SparseWeightedSum(const float* weights, const std::int32_t* columns,
                                           std::int64_t count, const float* panels,
                                           std::int64_t panel_stride, std::int64_t width,
                                           float* sum) {
  const FloatTag d;
  std::int64_t c = 0;
  for (; c + 4 * kPanel <= width; c += 4 * kPanel, panels += 4 * panel_stride, sum += 4 * kPanel) {
    Vector s0 = hn::LoadU(d, sum), s1 = hn::LoadU(d, sum + kLanes);
    Vector s2 = hn::LoadU(d, sum + 2 * kLanes), s3 = hn::LoadU(d, sum + 3 * kLanes);
    Vector s4 = hn::LoadU(d, sum + 4 * kLanes), s5 = hn::LoadU(d, sum + 5 * kLanes);
    Vector s6 = hn::LoadU(d, sum + 6 * kLanes), s7 = hn::LoadU(d, sum + 7 * kLanes);
    for (std::int64_t n = 0; n < count; ++n) {
      const Vector w = hn::Set(d, weights[columns[n]]);
      const float* b0 = panels + columns[n] * kPanel;
      const float* b1 = b0 + panel_stride;
      const float* b2 = b1 + panel_stride;
      const float* b3 = b2 + panel_stride;
      s0 = hn::MulAdd(w, hn::LoadU(d, b0), s0);
      s1 = hn::MulAdd(w, hn::LoadU(d, b0 + kLanes), s1);
      s2 = hn::MulAdd(w, hn::LoadU(d, b1), s2);
      s3 = hn::MulAdd(w, hn::LoadU(d, b1 + kLanes), s3);
      s4 = hn::MulAdd(w, hn::LoadU(d, b2), s4);
      s5 = hn::MulAdd(w, hn::LoadU(d, b2 + kLanes), s5);
      s6 = hn::MulAdd(w, hn::LoadU(d, b3), s6);
      s7 = hn::MulAdd(w, hn::LoadU(d, b3 + kLanes), s7);
    }
    hn::StoreU(s0, d, sum), hn::StoreU(s1, d, sum + kLanes);
    hn::StoreU(s2, d, sum + 2 * kLanes), hn::StoreU(s3, d, sum + 3 * kLanes);
    hn::StoreU(s4, d, sum + 4 * kLanes), hn::StoreU(s5, d, sum + 5 * kLanes);
    hn::StoreU(s6, d, sum + 6 * kLanes), hn::StoreU(s7, d, sum + 7 * kLanes);
  }
  for (; c < width; c += kPanel, panels += panel_stride, sum += kPanel) {
    Vector s0 = hn::LoadU(d, sum), s1 = hn::LoadU(d, sum + kLanes);
    for (std::int64_t n = 0; n < count; ++n) {
      const Vector w = hn::Set(d, weights[columns[n]]);
      const float* b = panels + columns[n] * kPanel;
      s0 = hn::MulAdd(w, hn::LoadU(d, b), s0);
      s1 = hn::MulAdd(w, hn::LoadU(d, b + kLanes), s1);
    }
    hn::StoreU(s0, d, sum), hn::StoreU(s1, d, sum + kLanes);
  }
}

// sum[column][width] += weights[column] row[width] for every listed column.
inline HWY_NOINLINE void SparseScatterSum(const float* weights, const std::int32_t* columns,
                                          std::int64_t count, const float* row, std::int64_t width,
                                          float* sum) {
  const FloatTag d;
  for (std::int64_t n = 0; n < count; ++n) {
    const Vector w = hn::Set(d, weights[columns[n]]);
    float* to = sum + columns[n] * width;
    for (std::int64_t c = 0; c < width; c += kLanes) {
      hn::StoreU(hn::MulAdd(w, hn::LoadU(d, row + c), hn::LoadU(d, to + c)), d, to + c);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_ATTENTION_PRODUCT_INL_H_
