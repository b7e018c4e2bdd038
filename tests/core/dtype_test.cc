// SPDX-License-Identifier: MIT
#include "core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/random.h"

namespace clearhead {
namespace {

// The value of a format with 1 sign bit, `exponent_bits` and the rest mantissa, from its
// definition.
double ByDefinition(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

bool Same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

struct Format {
  const char* name;
  DType dtype;
  int exponent_bits;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
};

class SixteenBits : public testing::TestWithParam<Format> {};

TEST_P(SixteenBits, EveryValueWidensExactlyAndComesBack) {
  const Format& format = GetParam();
  for (int i = 0; i < 65'536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = format.widen(bits);
    ASSERT_TRUE(Same(value, ByDefinition(bits, format.exponent_bits))) << i << " gave " << value;
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(ByDefinition(format.narrow(value), format.exponent_bits))) << i;
    } else {
      ASSERT_EQ(format.narrow(value), bits) << value;
    }
  }
}

// Between each two neighbours a < b: the midpoint goes to the even one, anything beyond to the
// nearer.
TEST_P(SixteenBits, RoundsToNearestEven) {
  const Format& format = GetParam();
  const int infinity = ((1 << format.exponent_bits) - 1) << (15 - format.exponent_bits);
  for (int i = 0; i + 1 < infinity; ++i) {
    const auto low = static_cast<std::uint16_t>(i), high = static_cast<std::uint16_t>(i + 1);
    const double middle = (double{format.widen(low)} + double{format.widen(high)}) / 2;
    const auto exact = static_cast<float>(middle);
    ASSERT_EQ(double{exact}, middle);
    const std::uint16_t even = i % 2 == 0 ? low : high;
    ASSERT_EQ(format.narrow(exact), even) << middle;
    ASSERT_EQ(format.narrow(std::nextafter(exact, 0.0f)), low) << middle;
    ASSERT_EQ(format.narrow(std::nextafter(exact, INFINITY)), high) << middle;
    ASSERT_EQ(format.narrow(-exact), even | 0x8000) << middle;
  }
  // Past the largest finite value half a step decides between it and infinity.
  const float largest = format.widen(static_cast<std::uint16_t>(infinity - 1));
  const float step = largest - format.widen(static_cast<std::uint16_t>(infinity - 2));
  const float tie = largest + step / 2;
  EXPECT_EQ(format.narrow(std::nextafter(tie, 0.0f)), infinity - 1);
  EXPECT_EQ(format.narrow(tie), infinity);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(format.narrow(-std::numeric_limits<float>::infinity()), infinity | 0x8000);
  EXPECT_EQ(format.narrow(std::numeric_limits<float>::denorm_min()), 0);
}

// Payloads that truncation alone would turn into infinity.
TEST_P(SixteenBits, EveryKindOfNaNStaysOne) {
  const Format& format = GetParam();
  for (const std::uint32_t bits :
       {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const std::uint16_t narrow = format.narrow(std::bit_cast<float>(bits));
    EXPECT_TRUE(std::isnan(ByDefinition(narrow, format.exponent_bits))) << std::hex << bits;
    EXPECT_EQ(narrow >> 15, bits >> 31);
  }
}

TEST_P(SixteenBits, ArraysEqualSingleValuesAtAnySizeAndAlignment) {
  const Format& format = GetParam();
  // 200,003 is past the size from which threads share the work.
  for (const std::int64_t n : {0, 1, 2, 3, 7, 8, 31, 257, 65'535, 65'536, 200'003}) {
    for (const std::size_t shift : {0, 1, 3}) {
      const auto size = static_cast<std::size_t>(n);
      std::vector<float> values(size), back(size + 1, -7);
      std::vector<std::byte> bytes(2 * size + shift + 1, std::byte{0xee});
      RandomStream random(static_cast<std::uint64_t>(n));
      for (float& value : values)
        value = std::bit_cast<float>(static_cast<std::uint32_t>(random.Bits()));
      ConvertFromFloat(values.data(), n, format.dtype, bytes.data() + shift);
      ConvertToFloat(format.dtype, bytes.data() + shift, n, back.data());
      for (std::size_t i = 0; i < size; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, bytes.data() + shift + 2 * i, 2);
        ASSERT_EQ(bits, format.narrow(values[i])) << i << " of " << n;
        ASSERT_TRUE(Same(back[i], format.widen(bits))) << i << " of " << n;
      }
      EXPECT_EQ(bytes.back(), std::byte{0xee});
      EXPECT_EQ(back.back(), -7);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, SixteenBits,
                         testing::Values(Format{"F16", DType::kF16, 5, HalfToFloat, FloatToHalf},
                                         Format{"BF16", DType::kBF16, 8, BFloat16ToFloat,
                                                FloatToBFloat16}),
                         [](const auto& info) { return info.param.name; });

TEST(DType, FloatsAreCopiedBitForBit) {
  const std::uint32_t patterns[] = {0, 0x80000000, 0x7f800001, 0xffffffff, 1, 0x3f800000};
  std::vector<std::byte> bytes(sizeof(patterns) + 1);
  std::memcpy(bytes.data() + 1, patterns, sizeof(patterns));
  float values[6];
  ConvertToFloat(DType::kF32, bytes.data() + 1, 6, values);
  EXPECT_EQ(std::memcmp(values, patterns, sizeof(patterns)), 0);
  std::vector<std::byte> back(sizeof(patterns) + 1);
  ConvertFromFloat(values, 6, DType::kF32, back.data() + 1);
  EXPECT_EQ(back, bytes);
}

TEST(DType, OtherTypesDoNotConvert) {
  float value = 0;
  std::byte byte{};
  EXPECT_THROW(ConvertToFloat(DType::kI32, &byte, 0, &value), std::logic_error);
  EXPECT_THROW(ConvertFromFloat(&value, 0, DType::kF64, &byte), std::logic_error);
}

TEST(DType, NamesAndSizes) {
  const std::pair<const char*, int> expected[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : expected) {
    const std::optional<DType> dtype = DTypeFromName(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(DTypeName(*dtype), name);
    EXPECT_EQ(DTypeSize(*dtype), size) << name;
  }
  for (const char* name : {"", "f32", "F32 ", "F128", "FLOAT"})
    EXPECT_FALSE(DTypeFromName(name)) << name;
}

}  // namespace
}  // namespace clearhead
