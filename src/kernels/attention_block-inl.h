// The block machinery that all attention kernels share: packing, products of cache-sized blocks, and the
// vector functions of a row. Compiled once per instruction set (Highway).
//
// Everything here works on scratch memory padded to whole tiles, so no product has edge cases:
//   rows      row-major [rows][width], width = head size rounded up to a panel
//   panels    the right-hand side of a product: groups of kPanel columns, each [depth][kPanel] contiguous
// A product accumulates every element in one chain over its depth, in order. Therefore a result does not
// depend on how work is cut into blocks, and skipping zero weights (SparseWeightedSum) changes no bit.
#if defined(CLEARHEAD_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_ATTENTION_BLOCK_INL_H_
#undef CLEARHEAD_ATTENTION_BLOCK_INL_H_
#else
#define CLEARHEAD_ATTENTION_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/threads.h"
#include "kernels/attention.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Vector = hn::Vec<FloatTag>;

// The register tile of a product: 6 rows by 2 vectors are 12 running sums, enough to hide the latency
// of multiply-add, and with 2 + 1 operands they just fit the 16 registers of AVX2.
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr std::int64_t kPanel = 2 * kLanes;

// Queries of a block and keys of a tile: multiples of kTileRows and of any kPanel up to 32.
constexpr std::int64_t kQueryBlock = 96;
constexpr std::int64_t kKeyTile = 288;

// Row functions zero this many weights past the last visible key, because tiles read that far.
constexpr std::int64_t kZeroTail = std::max<std::int64_t>(kLanes, 8);

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Stride of a scratch row of weights: room for the zero tail, and not a power of two, which would put a
// column of the block into one cache set.
constexpr std::int64_t WeightStride(std::int64_t columns) {
  return RoundUp(columns, 96) + kZeroTail + kPanel + 16;
}

// ---- Vector functions ------------------------------------------------------------------------------

// exp(x) for x <= 88, relative error about 1e-7; exactly 0 below -88; NaN stays NaN.
// x = n ln2 + r, |r| <= ln2/2: exp(r) by its minimax polynomial, 2^n through the exponent bits. Adding
// 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 more makes them the exponent.
HWY_INLINE Vector FastExp(Vector x) {
  const FloatTag d;
  const IntTag di;
  const Vector shift = hn::Set(d, 12583039.0f);
  x = hn::Max(hn::Set(d, -88.0f), x);
  const Vector shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const Vector n = hn::Sub(shifted, shift);
  Vector r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  Vector y = hn::Set(d, 1.3836765e-3f);
  y = hn::MulAdd(y, r, hn::Set(d, 8.3748562e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 4.1668229e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.66664197e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 0.49999992f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.0f));
  return hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

HWY_INLINE float SumOf(Vector v) { return hn::GetLane(hn::SumOfLanes(FloatTag(), v)); }
HWY_INLINE float MaxOf(Vector v) { return hn::GetLane(hn::MaxOfLanes(FloatTag(), v)); }

// The largest of row[0, count); what follows up to a whole vector is read and ignored.
HWY_INLINE float RowMax(const float* row, std::int64_t count) {
  const FloatTag d;
  const Vector lowest = hn::Set(d, -HUGE_VALF);
  Vector max0 = lowest, max1 = lowest;
  std::int64_t j = 0;
  for (; j + 2 * kLanes <= count; j += 2 * kLanes) {
    max0 = hn::Max(max0, hn::LoadU(d, row + j));
    max1 = hn::Max(max1, hn::LoadU(d, row + j + kLanes));
  }
  for (; j < count; j += kLanes) {
    const auto valid = hn::FirstN(d, static_cast<std::size_t>(count - j));
    max0 = hn::Max(max0, hn::IfThenElse(valid, hn::LoadU(d, row + j), lowest));
  }
  return MaxOf(hn::Max(max0, max1));
}

// Zeroes kZeroTail values from `count` rounded up to a whole vector; a row function has masked the rest.
HWY_INLINE void ZeroTail(float* row, std::int64_t count) {
  const FloatTag d;
  const std::int64_t end = RoundUp(count, kLanes);
  for (std::int64_t j = end; j < end + kZeroTail; j += kLanes) hn::StoreU(hn::Zero(d), d, row + j);
}

// sum_c a[c] b[c] over memory of any alignment and length.
HWY_INLINE float DotOf(const float* a, const float* b, std::int64_t count) {
  const FloatTag d;
  Vector sum = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum);
  }
  float dot = SumOf(sum);
  for (; c < count; ++c) dot += a[c] * b[c];
  return dot;
}

// ---- Packing ---------------------------------------------------------------------------------------

// The rows of one sequence and head.
template <typename T>
struct HeadSlice {
  T* data;
  std::int64_t row_stride;
  T* row(std::int64_t t) const { return data + t * row_stride; }
};

template <typename T>
HeadSlice<T> Slice(const AttentionShape& shape, const HeadRows<T>& rows, std::int64_t b,
                   std::int64_t h) {
  return {rows.data + b * rows.batch_stride + h * shape.head_size, rows.row_stride};
}

// out[r][c] = scale * in[r][c], zero up to padded_rows and width.
inline HWY_NOINLINE void PackRows(HeadSlice<const float> in, std::int64_t rows, std::int64_t columns, float scale,
                     std::int64_t padded_rows, std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < padded_rows; ++r, out += width) {
    const std::int64_t filled = r < rows ? columns : 0;
    for (std::int64_t c = 0; c < filled; ++c) out[c] = scale * in.row(r)[c];
    std::fill(out + filled, out + width, 0.0f);
  }
}

// Panels of in[rows][columns] for a product of depth `rows`: out[c / kPanel][r][c % kPanel].
inline HWY_NOINLINE void PackPanels(HeadSlice<const float> in, std::int64_t rows, std::int64_t columns, float scale,
                       std::int64_t panel_stride, float* out) {
  for (std::int64_t first = 0; first < columns; first += kPanel, out += panel_stride) {
    const std::int64_t filled = std::min(kPanel, columns - first);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* to = out + r * kPanel;
      const float* from = in.row(r) + first;
      for (std::int64_t c = 0; c < filled; ++c) to[c] = scale * from[c];
      std::fill(to + filled, to + kPanel, 0.0f);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr std::int64_t kTransposedRows = 1;
HWY_INLINE void TransposeRows(HeadSlice<const float> in, std::int64_t columns, float* out,
                              std::int64_t out_row) {
  for (std::int64_t c = 0; c < columns; ++c) out[c * out_row] = in.data[c];
}
#else
constexpr std::int64_t kTransposedRows = 4;
// out[c][r] = in[r][c] for 4 rows and columns [0, columns), out with `out_row` values between its rows.
HWY_INLINE void TransposeRows(HeadSlice<const float> in, std::int64_t columns, float* out,
                                  std::int64_t out_row) {
  const hn::CappedTag<float, 4> d;
  std::int64_t c = 0;
  for (; c + 4 <= columns; c += 4, out += 4 * out_row) {
    const auto row0 = hn::LoadU(d, in.row(0) + c), row1 = hn::LoadU(d, in.row(1) + c);
    const auto row2 = hn::LoadU(d, in.row(2) + c), row3 = hn::LoadU(d, in.row(3) + c);
    const auto even_low = hn::InterleaveLower(d, row0, row2);
    const auto odd_low = hn::InterleaveLower(d, row1, row3);
    const auto even_high = hn::InterleaveUpper(d, row0, row2);
    const auto odd_high = hn::InterleaveUpper(d, row1, row3);
    hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, out);
    hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, out + out_row);
    hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, out + 2 * out_row);
    hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, out + 3 * out_row);
  }
  for (; c < columns; ++c, out += out_row) {
    for (std::int64_t r = 0; r < 4; ++r) out[r] = in.row(r)[c];
  }
}
#endif

// Panels of the transpose, for a product of depth `columns`: out[r / kPanel][c][r % kPanel], with zeros
// in place of rows beyond the last.
inline HWY_NOINLINE void PackTransposed(HeadSlice<const float> in, std::int64_t rows,
                                        std::int64_t columns, float* out) {
  for (std::int64_t first = 0; first < rows; first += kPanel, out += columns * kPanel) {
    for (std::int64_t r = 0; r < kPanel; r += kTransposedRows) {
      if (first + r + kTransposedRows <= rows) {
        TransposeRows({in.row(first + r), in.row_stride}, columns, out + r, kPanel);
        continue;
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        for (std::int64_t n = r; n < r + kTransposedRows; ++n) {
          out[c * kPanel + n] = first + n < rows ? in.row(first + n)[c] : 0.0f;
        }
      }
    }
  }
}

// out[r][c] = scale * in[r][c] back into the caller's tensor.
inline HWY_NOINLINE void UnpackRows(const float* in, std::int64_t width, std::int64_t rows, std::int64_t columns,
                       float scale, HeadSlice<float> out) {
  for (std::int64_t r = 0; r < rows; ++r, in += width) {
    for (std::int64_t c = 0; c < columns; ++c) out.row(r)[c] = scale * in[c];
  }
}

// ---- Work ------------------------------------------------------------------------------------------

// Hands out parts of one thread's scratch memory; each part starts at a cache line.
class ScratchParts {
 public:
  explicit ScratchParts(float* data) : next_(data) {}
  float* Take(std::int64_t size) {
    float* part = next_;
    next_ += RoundUp(size, 16);
    return part;
  }

 private:
  float* next_;
};

inline std::int64_t QueryBlocks(const AttentionShape& shape) {
  return (shape.queries + kQueryBlock - 1) / kQueryBlock;
}

// Calls body(b, h, first_block, last_block) in parallel. Sequences and heads are independent; where they
// are too few for the threads, the query blocks of a head are shared out as well (each share then packs
// the keys again).
template <class Body>
void ForHeadParts(const AttentionShape& shape, const Body& body) {
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t blocks = QueryBlocks(shape);
  if (heads == 0 || blocks == 0) return;
  const std::int64_t parts = std::clamp<std::int64_t>(2 * Threads() / heads, 1, blocks);
  ParallelFor(heads * parts, [&](std::int64_t task) {
    const std::int64_t head = task % heads;
    const std::int64_t part = parts - 1 - task / heads;  // the long rows first
    body(head / shape.heads, head % shape.heads, blocks * part / parts, blocks * (part + 1) / parts);
  });
}

// ---- Products --------------------------------------------------------------------------------------

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

// A block of the causal matrix: row m sees columns [0, Visible(m)).
struct CausalBlock {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first_visible;  // how many columns row 0 sees; may be negative or beyond `columns`
  std::int64_t Visible(std::int64_t m) const {
    return std::clamp<std::int64_t>(first_visible + m, 0, columns);
  }
  // Columns that any row of the tile from row m on sees.
  std::int64_t TileVisible(std::int64_t m) const {
    return Visible(std::min(m + kTileRows, rows) - 1);
  }
};

// The block of queries from `first_query` on against at most max_keys keys from `first_key` on.
inline CausalBlock BlockAt(const AttentionShape& shape, std::int64_t first_query,
                           std::int64_t first_key, std::int64_t max_keys) {
  return {.rows = std::min(kQueryBlock, shape.queries - first_query),
          .columns = std::min(max_keys, shape.keys - first_key),
          .first_visible = first_query + (shape.keys - shape.queries) + 1 - first_key};
}

// scores[rows][columns] = a[rows][depth] b, where some row of the tile sees the column.
inline HWY_NOINLINE void ScoreProduct(const CausalBlock& block, std::int64_t depth, const float* a,
                         std::int64_t a_row, const float* panels, float* scores,
                         std::int64_t score_row) {
  const std::int64_t visible = block.Visible(block.rows - 1);
  for (std::int64_t column = 0; column < visible; column += kPanel, panels += depth * kPanel) {
    for (std::int64_t m = 0; m < block.rows; m += kTileRows) {
      if (block.TileVisible(m) <= column) continue;
      MultiplyTile(depth, a + m * a_row, a_row, 1, panels, scores + m * score_row + column, score_row,
                   false);
    }
  }
}

// sum[rows][width] += weights[rows][columns] b[columns][width]; `skip`, if set, says which tiles of rows
// to leave out. A panel of b stays in the first-level cache for all tiles if columns <= kKeyTile.
inline HWY_NOINLINE void WeightedSum(const CausalBlock& block, const float* weights, std::int64_t weight_row,
                        const float* panels, std::int64_t panel_stride, std::int64_t width, float* sum,
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
                                  std::int64_t panel_stride, std::int64_t width, float* sum) {
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

// Columns of the nonzero weights of a row, in order; returns their number. The row has its zero tail.
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
inline HWY_NOINLINE void SparseWeightedSum(const float* weights, const std::int32_t* columns, std::int64_t count,
                              const float* panels, std::int64_t panel_stride, std::int64_t width,
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
inline HWY_NOINLINE void SparseScatterSum(const float* weights, const std::int32_t* columns, std::int64_t count,
                             const float* row, std::int64_t width, float* sum) {
  const FloatTag d;
  for (std::int64_t n = 0; n < count; ++n) {
    const Vector w = hn::Set(d, weights[columns[n]]);
    float* to = sum + columns[n] * width;
    for (std::int64_t c = 0; c < width; c += kLanes) {
      hn::StoreU(hn::MulAdd(w, hn::LoadU(d, row + c), hn::LoadU(d, to + c)), d, to + c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_ATTENTION_BLOCK_INL_H_
