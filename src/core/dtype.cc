// SPDX-License-Identifier: MIT
#include "core/dtype.h"

#include <array>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "core/threads.h"

namespace clearhead {
namespace {

static_assert(std::endian::native == std::endian::little, "stored tensors are little-endian");

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  int size;
};

// In the order of the enumerators, so that the enumerator is the index.
constexpr std::array kTypes = {
    DTypeInfo{DType::kF64, "F64", 8},        DTypeInfo{DType::kF32, "F32", 4},
    DTypeInfo{DType::kF16, "F16", 2},        DTypeInfo{DType::kBF16, "BF16", 2},
    DTypeInfo{DType::kI64, "I64", 8},        DTypeInfo{DType::kI32, "I32", 4},
    DTypeInfo{DType::kI16, "I16", 2},        DTypeInfo{DType::kI8, "I8", 1},
    DTypeInfo{DType::kU64, "U64", 8},        DTypeInfo{DType::kU32, "U32", 4},
    DTypeInfo{DType::kU16, "U16", 2},        DTypeInfo{DType::kU8, "U8", 1},
    DTypeInfo{DType::kBool, "BOOL", 1},      DTypeInfo{DType::kF8E4M3, "F8_E4M3", 1},
    DTypeInfo{DType::kF8E5M2, "F8_E5M2", 1},
};
constexpr bool InOrder() {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<std::size_t>(kTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(InOrder());

const DTypeInfo& Info(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)]; }

// Below this many elements waking the other threads costs more than it saves.
constexpr std::int64_t kParallelFrom = 1 << 16;

template <typename Body>
void InRanges(std::int64_t n, const Body& body) {
  if (n < kParallelFrom) return body(0, 0, n);
  ParallelRanges(n, body);
}

// The one-value conversions select between values computed both ways instead of branching: the
// loops over them then vectorise.

inline float FromHalf(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = half & 0x7c00u;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  // The exponent's bias grows from 15 to 127; for infinities and NaNs it becomes all ones.
  const std::uint32_t rebias = exponent == 0x7c00u ? 224u << 23 : 112u << 23;
  // A subnormal is its mantissa times 2^-24. Through an integer, not through an fp32 subnormal:
  // that would be zero in threads that flush them.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(half & 0x3ffu)) * 0x1p-24f;
  const std::uint32_t bits =
      exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : magnitude + rebias;
  return std::bit_cast<float>(bits | sign);
}

inline std::uint16_t ToHalf(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Normal: round the mantissa to 10 bits; a carry moves into the exponent, at the top to infinity.
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14: adding 0.5, whose last bit is worth 2^-24, makes the adder round.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x47800000u ? 0x7c00u : result;
  result = magnitude > 0x7f800000u ? nan : result;
  return static_cast<std::uint16_t>(result | ((bits >> 16) & 0x8000u));
}

inline float FromBFloat16(std::uint16_t bfloat) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bfloat) << 16);
}

inline std::uint16_t ToBFloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;  // quiet; rounding could carry it into infinity
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

template <float (*kConvert)(std::uint16_t)>
void Widen(const std::byte* in, std::int64_t n, float* out) {
  InRanges(n, [=](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, in + 2 * i, 2);
      out[i] = kConvert(bits);
    }
  });
}

template <std::uint16_t (*kConvert)(float)>
void Narrow(const float* in, std::int64_t n, std::byte* out) {
  InRanges(n, [=](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::uint16_t bits = kConvert(in[i]);
      std::memcpy(out + 2 * i, &bits, 2);
    }
  });
}

void CopyFloats(const void* in, std::int64_t n, void* out) {
  InRanges(n, [=](int, std::int64_t first, std::int64_t last) {
    std::memcpy(static_cast<std::byte*>(out) + 4 * first,
                static_cast<const std::byte*>(in) + 4 * first,
                static_cast<std::size_t>(4 * (last - first)));
  });
}

}  // namespace

std::string_view DTypeName(DType dtype) { return Info(dtype).name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeInfo& type : kTypes) {
    if (type.name == name) return type.dtype;
  }
  return std::nullopt;
}

std::int64_t DTypeSize(DType dtype) { return Info(dtype).size; }

bool IsConvertibleFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

void ConvertToFloat(DType from, const std::byte* in, std::int64_t n, float* out) {
  Check(IsConvertibleFloat(from), "only F32, F16 and BF16 convert to fp32");
  if (n == 0) return;
  if (from == DType::kF16) return Widen<FromHalf>(in, n, out);
  if (from == DType::kBF16) return Widen<FromBFloat16>(in, n, out);
  CopyFloats(in, n, out);
}

void ConvertFromFloat(const float* in, std::int64_t n, DType to, std::byte* out) {
  Check(IsConvertibleFloat(to), "fp32 converts only to F32, F16 and BF16");
  if (n == 0) return;
  if (to == DType::kF16) return Narrow<ToHalf>(in, n, out);
  if (to == DType::kBF16) return Narrow<ToBFloat16>(in, n, out);
  CopyFloats(in, n, out);
}

float HalfToFloat(std::uint16_t half) { return FromHalf(half); }
std::uint16_t FloatToHalf(float value) { return ToHalf(value); }
float BFloat16ToFloat(std::uint16_t bfloat) { return FromBFloat16(bfloat); }
std::uint16_t FloatToBFloat16(float value) { return ToBFloat16(value); }

}  // namespace clearhead
