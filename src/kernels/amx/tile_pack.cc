// SPDX-License-Identifier: MIT
#include "kernels/amx/tile_pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/amx/tile_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/amx/tile_pack.cc"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace clearhead::amx {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Words are 32 bits: two bf16 values of neighbouring k, the even k in the low half. In words, an A
// tile is [16 lanes][16 words] and a B tile its transpose.
constexpr std::int64_t kWords = kStepK / 2;

// fp32 bits, of which the upper half is the value rounded to bf16. Adding 0x7fff (plus one if the
// kept part is odd) carries into the kept part exactly when nearest-even rounds up. A NaN could
// carry into an infinity or zero; it is made quiet instead.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> RoundToUpperHalf(DF, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
}

template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> MakeWords(DF df, hn::Vec<DF> even, hn::Vec<DF> odd) {
  const hn::RebindToUnsigned<DF> du;
  const auto low = hn::ShiftRight<16>(RoundToUpperHalf(df, even));
  const auto high = hn::And(RoundToUpperHalf(df, odd), hn::Set(du, 0xffff0000u));
  return hn::Or(low, high);
}

// 16 rows of 32 contiguous k -> [16 rows][16 words].
HWY_INLINE void WordsFromRows(const float* HWY_RESTRICT rows, std::int64_t stride,
                              std::uint32_t* HWY_RESTRICT words) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const std::int64_t n = static_cast<std::int64_t>(hn::Lanes(df));
  for (std::int64_t row = 0; row < kTileLanes; ++row) {
    for (std::int64_t w = 0; w < kWords; w += n) {
#if HWY_TARGET == HWY_SCALAR
      const auto even = hn::LoadU(df, rows + row * stride + 2 * w);
      const auto odd = hn::LoadU(df, rows + row * stride + 2 * w + 1);
#else
      const auto first = hn::LoadU(df, rows + row * stride + 2 * w);
      const auto second = hn::LoadU(df, rows + row * stride + 2 * w + n);
      const auto even = hn::ConcatEven(df, second, first);
      const auto odd = hn::ConcatOdd(df, second, first);
#endif
      hn::Store(MakeWords(df, even, odd), du, words + row * kWords + w);
    }
  }
}

// 32 rows (k) of 16 contiguous lanes -> [16 words][16 lanes].
HWY_INLINE void WordsFromColumns(const float* HWY_RESTRICT rows, std::int64_t stride,
                                 std::uint32_t* HWY_RESTRICT words) {
  const hn::CappedTag<float, 16> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const std::int64_t n = static_cast<std::int64_t>(hn::Lanes(df));
  for (std::int64_t w = 0; w < kWords; ++w) {
    for (std::int64_t lane = 0; lane < kTileLanes; lane += n) {
      const auto even = hn::LoadU(df, rows + 2 * w * stride + lane);
      const auto odd = hn::LoadU(df, rows + (2 * w + 1) * stride + lane);
      hn::Store(MakeWords(df, even, odd), du, words + w * kTileLanes + lane);
    }
  }
}

// [16][16] words -> transposed, in 4 x 4 blocks.
HWY_INLINE void Transpose(const std::uint32_t* HWY_RESTRICT from, std::uint32_t* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t i = 0; i < 16; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) to[j * 16 + i] = from[i * 16 + j];
  }
#else
  const hn::Full128<std::uint32_t> d;
  const hn::Full128<std::uint64_t> d64;
  for (std::int64_t i = 0; i < 16; i += 4) {
    for (std::int64_t j = 0; j < 16; j += 4) {
      const std::uint32_t* in = from + i * 16 + j;
      const auto r0 = hn::Load(d, in);
      const auto r1 = hn::Load(d, in + 16);
      const auto r2 = hn::Load(d, in + 32);
      const auto r3 = hn::Load(d, in + 48);
      // Pairs of column 0 and 1 (low), 2 and 3 (high) of two rows each.
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      std::uint32_t* out = to + j * 16 + i;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + 16);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 32);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 48);
    }
  }
#endif
}

// One full tile: 16 lanes x 32 k from `data`.
void PackTile(const float* data, std::int64_t stride, bool k_contiguous, TileOrder order,
              std::uint32_t* tile) {
  const bool straight = k_contiguous == (order == TileOrder::kRows);
  alignas(64) std::uint32_t turned[kWords * kTileLanes];
  std::uint32_t* words = straight ? tile : turned;
  if (k_contiguous) {
    WordsFromRows(data, stride, words);
  } else {
    WordsFromColumns(data, stride, words);
  }
  if (!straight) Transpose(turned, tile);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace clearhead::amx
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clearhead::amx {

HWY_EXPORT(PackTile);

void PackStep(const PackSource& source, TileOrder order, std::int64_t first_lane,
              std::int64_t first_k, std::uint16_t* out) {
  const std::int64_t depth = std::clamp<std::int64_t>(source.depth - first_k, 0, kStepK);
  for (std::int64_t half = 0; half < 2; ++half) {
    const std::int64_t lane = first_lane + half * kTileLanes;
    const std::int64_t lanes = std::clamp<std::int64_t>(source.lanes - lane, 0, kTileLanes);
    auto* tile = reinterpret_cast<std::uint32_t*>(out + half * kTileValues);
    if (lanes == 0 || depth == 0) {
      std::memset(tile, 0, kTileValues * sizeof(std::uint16_t));
      continue;
    }
    const float* data = source.k_contiguous ? source.data + lane * source.stride + first_k
                                            : source.data + first_k * source.stride + lane;
    if (lanes == kTileLanes && depth == kStepK) {
      HWY_DYNAMIC_DISPATCH(PackTile)(data, source.stride, source.k_contiguous, order, tile);
      continue;
    }
    // The edge: the valid part in a full tile of zeros.
    alignas(64) float padded[kTileValues] = {};
    const std::int64_t rows = source.k_contiguous ? lanes : depth;
    const std::int64_t columns = source.k_contiguous ? depth : lanes;
    const std::int64_t padded_stride = source.k_contiguous ? kStepK : kTileLanes;
    for (std::int64_t row = 0; row < rows; ++row) {
      std::copy_n(data + row * source.stride, columns, padded + row * padded_stride);
    }
    HWY_DYNAMIC_DISPATCH(PackTile)(padded, padded_stride, source.k_contiguous, order, tile);
  }
}

}  // namespace clearhead::amx
#endif
