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

// Sums stay in registers: rows x 3 vectors of them, beside 3 vectors of B and a value of A. With 32
// registers that is 8 rows, with 16 it is 4.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int kBlockRows = 8;
#else
constexpr int kBlockRows = 4;
#endif
constexpr int kBlockVectors = 3;
constexpr std::int64_t kBlockColumns = kBlockVectors * kProductLanes;
static_assert(kPanelColumns % kBlockColumns == 0);

// 16 bits are widened in registers.
HWY_INLINE ProductVector LoadWide(const float* from) { return hn::LoadU(ProductTag(), from); }
template <typename Half>
HWY_INLINE ProductVector LoadWide(const Half* from) {
  const hn::Rebind<Half, ProductTag> d;
  return hn::PromoteTo(ProductTag(), hn::LoadU(d, from));
}

// What a block adds its sums to.
enum class Start {
  kZero,
  kC,     // what C holds
  kBias,  // one row for all
};

// Where a block's sums go.
struct BlockOutput {
  float* c;
  std::int64_t stride;
  Start start;
  const float* bias;     // with kBias
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

// C[kRows][columns] = start + A[kRows][depth] B[depth][kPanelColumns], for the first kVectors
// vectors of the panel's columns.
template <int kRows, int kVectors, int kLines, typename T>
HWY_NOINLINE void MultiplyBlock(std::int64_t depth, const float* HWY_RESTRICT a,
                                std::int64_t a_stride, const T* HWY_RESTRICT b, Fetch fetch,
                                const BlockOutput& out) {
  const ProductTag d;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hwy::Prefetch(out.c + r * out.stride + v * kProductLanes);
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
  float* to = whole ? out.c : edge;
  const std::int64_t stride = whole ? out.stride : kVectors * kProductLanes;
  const float* from = out.start == Start::kBias ? out.bias : out.c;
  std::int64_t from_stride = out.start == Start::kBias ? 0 : out.stride;
  if (!whole && out.start != Start::kZero) {
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
      if (out.start != Start::kZero) {
        sum = hn::Add(hn::LoadU(d, from + r * from_stride + v * kProductLanes), sum);
      }
      hn::StoreU(sum, d, to + r * stride + v * kProductLanes);
    }
  }
  if (whole) return;
  for (int r = 0; r < kRows; ++r) {
    std::copy_n(edge + r * stride, out.columns, out.c + r * out.stride);
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

// C[rows][columns] = start + A[rows][depth] B, B a chunk of one panel; columns at most a panel.
// Meanwhile B is fetched: of many blocks of rows each brings a part of the chunk that comes `next`;
// a few rows run at the speed at which B comes from memory.
template <typename T>
void MultiplyPanel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_stride,
                   const T* b, const void* next, const BlockOutput& out) {
  constexpr std::int64_t kRowBytes = kPanelColumns * sizeof(T);
  constexpr int kRowLines = (kRowBytes + 63) / 64;
  const std::int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const bool few = blocks < kRowLines;
  Fetch fetch{static_cast<const char*>(next), (kRowBytes + blocks - 1) / blocks};
  if (few) fetch = {reinterpret_cast<const char*>(b + kFetchAhead * kPanelColumns), kRowBytes};
  for (std::int64_t j = 0; j < out.columns; j += kBlockColumns) {
    BlockOutput block = out;
    block.columns = std::min(kBlockColumns, out.columns - j);
    block.bias = out.bias == nullptr ? nullptr : out.bias + j;
    const std::int64_t vectors = (block.columns + kProductLanes - 1) / kProductLanes;
    for (std::int64_t r = 0; r < rows; r += kBlockRows) {
      block.c = out.c + r * out.stride + j;
      const std::int64_t count = std::min<std::int64_t>(kBlockRows, rows - r);
      const float* block_a = a + r * a_stride;
      if (vectors == 1) {
        MultiplyRows<1, 1>(count, depth, block_a, a_stride, b + j, fetch, block);
      } else if (vectors == 2) {
        MultiplyRows<2, 1>(count, depth, block_a, a_stride, b + j, fetch, block);
      } else if (few) {
        MultiplyRows<3, kRowLines>(count, depth, block_a, a_stride, b + j, fetch, block);
      } else {
        MultiplyRows<3, 1>(count, depth, block_a, a_stride, b + j, fetch, block);
      }
      if (!few) fetch.from += fetch.step * depth;
    }
  }
}

// to[columns][rows] = from[rows][columns]^T
void TransposeCopy(std::int64_t rows, std::int64_t columns, const float* from,
                   std::int64_t from_stride, float* to, std::int64_t to_stride) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::Full128<float> d;
  const hn::Full128<double> d64;
  for (; i + 4 <= rows; i += 4) {
    std::int64_t j = 0;
    for (; j + 4 <= columns; j += 4) {
      const float* in = from + i * from_stride + j;
      const auto r0 = hn::LoadU(d, in);
      const auto r1 = hn::LoadU(d, in + from_stride);
      const auto r2 = hn::LoadU(d, in + 2 * from_stride);
      const auto r3 = hn::LoadU(d, in + 3 * from_stride);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      float* out = to + j * to_stride + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * to_stride);
    }
    for (; j < columns; ++j) {
      for (std::int64_t r = i; r < i + 4; ++r) {
        to[j * to_stride + r] = from[r * from_stride + j];
      }
    }
  }
#endif
  for (; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead
HWY_AFTER_NAMESPACE();

#endif  // CLEARHEAD_PRODUCT_BLOCK_INL_H_
