// SPDX-License-Identifier: MIT
// What all attention kernels share besides the products (attention_product-inl.h): block sizes, the
// vector functions of a row, packing, and the cutting of work. Compiled once per instruction set
// (Highway).
//
// Everything works on scratch memory padded to whole tiles, so no product has edge cases:
//   rows     row-major [rows][width], width = head size rounded up to a panel
//   panels   the right-hand side of a product: groups of kPanel columns, each [depth][kPanel]
#if defined(CLEARHEAD_ATTENTION_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_ATTENTION_BLOCK_INL_H_
#undef CLEARHEAD_ATTENTION_BLOCK_INL_H_
#else
#define CLEARHEAD_ATTENTION_BLOCK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/threads.h"
#include "kernels/attention.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Vector = hn::Vec<FloatTag>;

// The register tile of a product: 6 rows by 2 vectors are 12 running sums, enough to hide the
// latency of multiply-add, and with 2 + 1 operands they just fit the 16 registers of AVX2.
constexpr std::int64_t kTileRows = 6;
constexpr std::int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr std::int64_t kPanel = 2 * kLanes;

// Queries of a block and keys of a tile: multiples of kTileRows and of any kPanel up to 32.
constexpr std::int64_t kQueryBlock = 96;
constexpr std::int64_t kKeyTile = 288;

// Row functions zero this many weights past the last visible key, because tiles read that far.
constexpr std::int64_t kZeroTail = std::max<std::int64_t>(kLanes, 8);

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

// Stride of a scratch row of weights: room for the zero tail, and not a power of two, which would
// put a column of the block into one cache set.
constexpr std::int64_t WeightStride(std::int64_t columns) {
  return RoundUp(columns, 96) + kZeroTail + kPanel + 16;
}

// ---- Vector functions ----

// exp(x) for x <= 88, relative error about 1e-7; exactly 0 below -88; NaN stays NaN.
// x = n ln2 + r, |r| <= ln2/2: exp(r) by its minimax polynomial, 2^n through the exponent bits.
// Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; 127 more makes them the
// exponent.
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

// Zeroes kZeroTail values from `count` rounded up to a whole vector; a row function has masked the
// rest.
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

// ---- Packing ----

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
  return {rows.data + b * rows.batch_stride + h / rows.share * shape.head_size, rows.row_stride};
}

// out[r][c] = scale * in[r][c], zero up to padded_rows and width.
inline HWY_NOINLINE void PackRows(HeadSlice<const float> in, std::int64_t rows,
                                  std::int64_t columns, float scale, std::int64_t padded_rows,
                                  std::int64_t width, float* out) {
  for (std::int64_t r = 0; r < padded_rows; ++r, out += width) {
    const std::int64_t filled = r < rows ? columns : 0;
    for (std::int64_t c = 0; c < filled; ++c) out[c] = scale * in.row(r)[c];
    std::fill(out + filled, out + width, 0.0f);
  }
}

// Panels of in[rows][columns] for a product of depth `rows`: out[c / kPanel][r][c % kPanel].
inline HWY_NOINLINE void PackPanels(HeadSlice<const float> in, std::int64_t rows,
                                    std::int64_t columns, float scale, std::int64_t panel_stride,
                                    float* out) {
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
// out[c][r] = in[r][c] for 4 rows and columns [0, columns), out with `out_row` values between its
// rows.
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

// Panels of the transpose, for a product of depth `columns`: out[r / kPanel][c][r % kPanel], with
// zeros in place of rows beyond the last.
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
inline HWY_NOINLINE void UnpackRows(const float* in, std::int64_t width, std::int64_t rows,
                                    std::int64_t columns, float scale, HeadSlice<float> out) {
  for (std::int64_t r = 0; r < rows; ++r, in += width) {
    for (std::int64_t c = 0; c < columns; ++c) out.row(r)[c] = scale * in[c];
  }
}

// ---- Work ----

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

// Calls body(b, h, first_block, last_block) in parallel. Sequences and heads are independent; where
// they are too few for the threads, the query blocks of a head are shared out as well (each share
// then packs the keys again).
template <class Body>
void ForHeadParts(const AttentionShape& shape, const Body& body) {
  const std::int64_t heads = shape.batch * shape.heads;
  const std::int64_t blocks = QueryBlocks(shape);
  if (heads == 0 || blocks == 0) return;
  const std::int64_t parts = std::clamp<std::int64_t>(2 * Threads() / heads, 1, blocks);
  ParallelFor(heads * parts, [&](std::int64_t task) {
    const std::int64_t head = task % heads;
    const std::int64_t part = parts - 1 - task / heads;  // the long rows first
    body(head / shape.heads, head % shape.heads, blocks * part / parts,
         blocks * (part + 1) / parts);
  });
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_ATTENTION_BLOCK_INL_H_
