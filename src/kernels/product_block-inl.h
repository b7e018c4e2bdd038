// SPDX-License-Identifier: MIT
// The innermost block of a matrix product, and the copies that feed it. Compiled once per
// instruction set (Highway).
#if defined(CLEARHEAD_PRODUCT_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CLEARHEAD_PRODUCT_BLOCK_INL_H_
#undef CLEARHEAD_PRODUCT_BLOCK_INL_H_
#else
#define CLEARHEAD_PRODUCT_BLOCK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/product_layout.h"

HWY_BEFORE_NAMESPACE();
namespace clearhead {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using ProductTag = hn::CappedTag<float, 16>;
using ProductVector = hn::Vec<ProductTag>;
constexpr std::int64_t kProductLanes = hn::MaxLanes(ProductTag());

// Sums stay in registers: 8 rows by 3 vectors with 32 registers, 6 by 2 with 16, beside as many
// vectors of B and a value of A. A chunk of k is as long as lets the columns of B that a block
// reads stay in or near the first-level cache while all rows pass by: 36 KiB of 48 columns of fp32;
// with blocks of two narrow vectors a longer one, because each chunk begins and ends its sums. (Of
// 192 and 96 the longer was 3 % faster on a Zen 4 with AVX-512.)
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kBlockRows = 8, kBlockVectors = 3;
constexpr std::int64_t kMostChunk = 192;
#else
constexpr int kBlockRows = 6, kBlockVectors = 2;
constexpr std::int64_t kMostChunk = 320;
#endif
static_assert(kMostChunk <= kLongestChunk);
constexpr std::int64_t kBlockColumns = kBlockVectors * kProductLanes;
static_assert(kPanelColumns % kBlockColumns == 0);

// 16 bits are widened in registers.
HWY_INLINE ProductVector LoadWide(const float* from) { return hn::LoadU(ProductTag(), from); }
template <typename Half>
HWY_INLINE ProductVector LoadWide(const Half* from) {
  const hn::Rebind<Half, ProductTag> d;
  return hn::PromoteTo(ProductTag(), hn::LoadU(d, from));
}

// What a block adds its sums to, and where they go.
struct BlockOutput {
  const float* from;  // null: nothing. A stride of 0 repeats one row (a bias).
  std::int64_t from_stride;
  float* to;  // may be `from`
  std::int64_t stride;
  std::int64_t columns;  // that exist
};

// What a block brings near meanwhile: some cache lines with every k, from k to k `step` bytes
// further. Any address will do.
struct Fetch {
  const char* from;
  std::int64_t step;
};

// Where rows are few, B comes from memory: it is fetched this many k before it is used. (16 to 64,
// and fetching into the first-level cache, were slower: its few places for lines on their way fill
// up.)
constexpr std::int64_t kFetchAhead = 128;

// to[kRows][columns] = from + A[kRows][depth] B[depth][kPanelColumns], for the first kVectors
// vectors of the panel's columns.
template <int kRows, int kVectors, int kLines, typename T>
HWY_NOINLINE void MultiplyBlock(std::int64_t depth, const float* HWY_RESTRICT a,
                                std::int64_t a_stride, const T* HWY_RESTRICT b, Fetch fetch,
                                const BlockOutput& out) {
  const ProductTag d;
  const float* ends = out.from == nullptr ? out.to : out.from;
  const std::int64_t ends_stride = out.from == nullptr ? out.stride : out.from_stride;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(ends + r * ends_stride + v * kProductLanes);
  }
  ProductVector sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    ProductVector columns[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) columns[v] = LoadWide(b + v * kProductLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const ProductVector x = hn::Set(d, a[r * a_stride + k]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, columns[v], sums[r][v]);
    }
    for (int line = 0; line < kLines; ++line) {
      __builtin_prefetch(fetch.from + 64 * line, /*rw=*/0, /*locality=*/2);  // to the second level
    }
    fetch.from += fetch.step;
    hwy::Prefetch(a + kRows * a_stride + k * kRows);  // the rows of A that come next, if copied
    b += kPanelColumns;
  }
  const bool whole = out.columns >= kVectors * kProductLanes;
  HWY_ALIGN float edge[kRows * kVectors * kProductLanes];
  float* to = whole ? out.to : edge;
  const std::int64_t stride = whole ? out.stride : kVectors * kProductLanes;
  const float* from = out.from;
  std::int64_t from_stride = out.from_stride;
  if (!whole && from != nullptr) {
    for (int r = 0; r < kRows; ++r) {
      for (std::int64_t j = 0; j < out.columns; ++j) {
        edge[r * stride + j] = from[r * from_stride + j];
      }
      std::fill(edge + r * stride + out.columns, edge + (r + 1) * stride, 0.0f);
    }
    from = edge;
    from_stride = stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      ProductVector sum = sums[r][v];
      if (from != nullptr) {
        sum = hn::Add(hn::LoadU(d, from + r * from_stride + v * kProductLanes), sum);
      }
      hn::StoreU(sum, d, to + r * stride + v * kProductLanes);
    }
  }
  if (whole) return;
  for (int r = 0; r < kRows; ++r) {
    std::copy_n(edge + r * stride, out.columns, out.to + r * out.stride);
  }
}

// The same for any number of rows up to kBlockRows.
template <int kVectors, int kLines, int kRows = kBlockRows, typename T>
HWY_INLINE void MultiplyRows(std::int64_t rows, std::int64_t depth, const float* a,
                             std::int64_t a_stride, const T* b, const Fetch& fetch,
                             const BlockOutput& out) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return MultiplyRows<kVectors, kLines, kRows - 1>(rows, depth, a, a_stride, b, fetch, out);
    }
  }
  MultiplyBlock<kRows, kVectors, kLines>(depth, a, a_stride, b, fetch, out);
}

// The chunk of B that comes next, to be fetched meanwhile.
struct NextChunk {
  const void* from;
  std::int64_t stride;  // bytes between its rows
  int lines;            // that a row of kPanelColumns values touches
};

// to[rows][columns] = from + A[rows][depth] B, B a chunk of one panel; columns at most a panel.
// Meanwhile B is fetched: of many blocks of rows the first ones bring a line of every row of the
// chunk that comes next; a few rows run at the speed at which B comes from memory.
template <typename T>
void MultiplyPanel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_stride,
                   const T* b, const NextChunk& next, const BlockOutput& out) {
  constexpr std::int64_t kRowBytes = kPanelColumns * sizeof(T);
  constexpr int kRowLines = (kRowBytes + 63) / 64;
  const bool few = rows <= (kRowLines - 1) * kBlockRows;
  Fetch fetch{static_cast<const char*>(next.from), next.stride};
  int lines = few ? 0 : next.lines;
  if (few) fetch = {reinterpret_cast<const char*>(b + kFetchAhead * kPanelColumns), kRowBytes};
  for (std::int64_t j = 0; j < out.columns; j += kBlockColumns) {
    BlockOutput block = out;
    block.columns = std::min(kBlockColumns, out.columns - j);
    const std::int64_t vectors = (block.columns + kProductLanes - 1) / kProductLanes;
    for (std::int64_t r = 0; r < rows; r += kBlockRows) {
      if (out.from != nullptr) block.from = out.from + r * out.from_stride + j;
      block.to = out.to + r * out.stride + j;
      const std::int64_t count = std::min<std::int64_t>(kBlockRows, rows - r);
      const float* block_a = a + r * a_stride;
      if (vectors == 1) {
        MultiplyRows<1, 0>(count, depth, block_a, a_stride, b + j, fetch, block);
      } else if (vectors < kBlockVectors) {
        MultiplyRows<2, 0>(count, depth, block_a, a_stride, b + j, fetch, block);
      } else if (few) {
        MultiplyRows<kBlockVectors, kRowLines>(count, depth, block_a, a_stride, b + j, fetch,
                                               block);
      } else if (lines > 0) {
        MultiplyRows<kBlockVectors, 1>(count, depth, block_a, a_stride, b + j, fetch, block);
        fetch.from += 64;
        --lines;
      } else {
        MultiplyRows<kBlockVectors, 0>(count, depth, block_a, a_stride, b + j, fetch, block);
      }
    }
  }
}

// to[4][4] = from[4][4]^T
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE void TransposeFour(const float* in, std::int64_t in_stride, float* out,
                              std::int64_t out_stride) {
  const hn::Full128<float> d;
  const hn::Full128<double> d64;
  const auto r0 = hn::LoadU(d, in);
  const auto r1 = hn::LoadU(d, in + in_stride);
  const auto r2 = hn::LoadU(d, in + 2 * in_stride);
  const auto r3 = hn::LoadU(d, in + 3 * in_stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * out_stride);
}
#endif

// to[columns][rows] = from[rows][columns]^T, 16 rows at a time: whole cache lines of `to`.
void TransposeCopy(std::int64_t rows, std::int64_t columns, const float* from,
                   std::int64_t from_stride, float* to, std::int64_t to_stride) {
  std::int64_t whole_rows = 0, whole_columns = 0;
#if HWY_TARGET != HWY_SCALAR
  whole_rows = rows / 4 * 4;
  whole_columns = columns / 4 * 4;
  for (std::int64_t i = 0; i < whole_rows; i += 16) {
    const std::int64_t last = std::min(i + 16, whole_rows);
    for (std::int64_t j = 0; j < whole_columns; j += 4) {
      for (std::int64_t r = i; r < last; r += 4) {
        TransposeFour(from + r * from_stride + j, from_stride, to + j * to_stride + r, to_stride);
      }
    }
  }
#endif
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      to[j * to_stride + i] = from[i * from_stride + j];
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_PRODUCT_BLOCK_INL_H_
