// SPDX-License-Identifier: MIT
// Element types of stored tensors, and conversion to and from the fp32 that all computing uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace clearhead {

enum class DType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

std::string_view DTypeName(DType dtype);  // as safetensors spells it: "F32", "BF16", "BOOL", ...
std::optional<DType> DTypeFromName(std::string_view name);
std::int64_t DTypeSize(DType dtype);  // bytes per element

// True for the types that hold a model's weights: F32, F16, BF16.
bool IsConvertibleFloat(DType dtype);

// n values of type `from` (F32, F16, BF16; any alignment) to fp32: exact. NaNs stay NaNs.
void ConvertToFloat(DType from, const std::byte* in, std::int64_t n, float* out);

// fp32 to n values of type `to` (F32, F16, BF16; any alignment): to nearest, ties to even; values
// beyond the largest finite one become infinite.
void ConvertFromFloat(const float* in, std::int64_t n, DType to, std::byte* out);

// One value each way, on the bits of the 16-bit formats.
float HalfToFloat(std::uint16_t half);
std::uint16_t FloatToHalf(float value);
float BFloat16ToFloat(std::uint16_t bfloat);
std::uint16_t FloatToBFloat16(float value);

}  // namespace clearhead
