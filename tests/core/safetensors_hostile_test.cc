// SPDX-License-Identifier: MIT
// Files that are damaged or made to hurt: each must give one clear line, and never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/safetensors.h"
#include "support/safetensors_bytes.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;
using std::string_literals::operator""s;

struct HostileCase {
  const char* name;
  std::string header;
  std::vector<std::string> parts;  // of the message, beside the file's name
};

// Eight bytes of data follow every header.
std::vector<HostileCase> HostileCases() {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  };
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8",)" + a + R"(},"b":{"dtype":"U8",)" + b + "}}";
  };
  const std::string good = R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  return {
      {"Empty", "", {"not a JSON object"}},
      {"Spaces", "    ", {"not a JSON object"}},
      {"LeadingSpace", " {" + good + "}", {"not a JSON object"}},
      {"ByteOrderMark", "\xef\xbb\xbf{" + good + "}", {"not a JSON object"}},
      {"Array", "[]", {"not a JSON object"}},
      {"Number", "1", {"not a JSON object"}},
      {"Unclosed", "{" + good, {"not valid JSON"}},
      {"TrailingComma", "{" + good + ",}", {"not valid JSON"}},
      {"TrailingText", "{" + good + "}x", {"not valid JSON"}},
      {"TwoObjects", "{" + good + "}{}", {"not valid JSON"}},
      {"NulThenText", "{" + good + "}\0x"s, {"not a JSON object"}},
      {"BadUtf8", "{\"\xff\":1}", {"not valid JSON"}},
      {"NumberTooBig", entry("\"F32\"", "[1e999]", "[0,8]"), {"not valid JSON"}},
      {"DuplicateTensor", "{" + good + "," + good + "}", {"two tensors", "'w'"}},
      {"DuplicateEscapedTensor", "{" + good + R"(,"\u0077":{}})", {"two tensors", "'w'"}},
      {"DuplicateMetadata", R"({"__metadata__":{},"__metadata__":{}})", {"__metadata__"}},
      {"DuplicateMetadataKey", R"({"__metadata__":{"k":"1","k":"2"}})", {"metadata", "'k'"}},
      {"DuplicateField", R"({"w":{"dtype":"F32","dtype":"F32"}})", {"'w'", "two fields 'dtype'"}},
      {"MetadataNull", R"({"__metadata__":null})", {"__metadata__", "null"}},
      {"MetadataText", R"({"__metadata__":"x"})", {"__metadata__", "'x'"}},
      {"MetadataNumber", R"({"__metadata__":{"k":1}})", {"metadata", "'k'", "number 1"}},
      {"MetadataObject", R"({"__metadata__":{"k":{}}})", {"metadata", "'k'", "an object"}},
      {"TensorNull", R"({"w":null})", {"'w'", "null"}},
      {"TensorArray", R"({"w":[]})", {"'w'", "an array"}},
      {"TensorTrue", R"({"w":true})", {"'w'", "true"}},
      {"NoFields", R"({"w":{}})", {"'w'", "no 'dtype'"}},
      {"NoShape", R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", {"'w'", "no 'shape'"}},
      {"NoOffsets", R"({"w":{"dtype":"F32","shape":[2]}})", {"'w'", "no 'data_offsets'"}},
      // The fields of one tensor must not count for the next.
      {"NoFieldsInSecond", "{" + good + R"(,"v":{}})", {"'v'", "no 'dtype'"}},
      {"UnknownField", R"({"w":{"dtype":"F32","layout":"x"}})", {"'w'", "'layout'"}},
      {"DTypeNumber", entry("32", "[2]", "[0,8]"), {"'w'", "number 32", "dtype"}},
      {"DTypeUnknown", entry("\"F33\"", "[2]", "[0,8]"), {"'w'", "'F33'"}},
      {"DTypeLowerCase", entry("\"f32\"", "[2]", "[0,8]"), {"'w'", "'f32'"}},
      {"DTypeEmpty", entry("\"\"", "[2]", "[0,8]"), {"'w'", "''"}},
      {"ShapeNumber", entry("\"F32\"", "2", "[0,8]"), {"'w'", "number 2", "shape"}},
      {"ShapeObject", entry("\"F32\"", "{}", "[0,8]"), {"'w'", "an object", "shape"}},
      {"ShapeNested", entry("\"F32\"", "[[2]]", "[0,8]"), {"'w'", "an array", "shape"}},
      {"ShapeText", entry("\"F32\"", "[\"2\"]", "[0,8]"), {"'w'", "'2'", "shape"}},
      {"ShapeNegative", entry("\"F32\"", "[-2]", "[0,8]"), {"'w'", "number -2", "shape"}},
      {"ShapeTwoNegatives", entry("\"F32\"", "[-1,-2]", "[0,8]"), {"'w'", "number -1", "shape"}},
      {"ShapeMinusZero", entry("\"F32\"", "[-0]", "[0,0]"), {"'w'", "shape"}},
      {"ShapeFraction", entry("\"F32\"", "[2.0]", "[0,8]"), {"'w'", "'2.0'", "shape"}},
      {"ShapeExponent", entry("\"F32\"", "[2e0]", "[0,8]"), {"'w'", "'2e0'", "shape"}},
      {"ShapeOver63Bits",
       entry("\"F32\"", "[9223372036854775808]", "[0,8]"),
       {"'w'", "9223372036854775808"}},
      {"ShapeOver64Bits",
       entry("\"F32\"", "[18446744073709551618]", "[0,8]"),
       {"'w'", "18446744073709551618"}},
      {"ShapeNineAxes", entry("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), {"'w'", "8 axes"}},
      {"ShapeOverflow",
       entry("\"F32\"", "[4294967296,4294967296]", "[0,8]"),
       {"'w'", "[4294967296,4294967296]"}},
      // 2^62 * 4 bytes wraps to 0, (2^62 + 2) * 4 to 8.
      {"BytesOverflowToZero",
       entry("\"F32\"", "[4611686018427387904]", "[0,0]"),
       {"'w'", "[4611686018427387904]"}},
      {"BytesOverflowToEight",
       entry("\"F32\"", "[4611686018427387906]", "[0,8]"),
       {"'w'", "[4611686018427387906]"}},
      {"HugeThenZero",
       entry("\"F32\"", "[9223372036854775807,9223372036854775807,0]", "[0,0]"),
       {"'w'", "9223372036854775807"}},
      {"ZeroThenHuge",
       entry("\"F32\"", "[0,9223372036854775807,9223372036854775807]", "[0,0]"),
       {"'w'", "9223372036854775807"}},
      {"OffsetsNumber", entry("\"F32\"", "[2]", "8"), {"'w'", "number 8", "data_offsets"}},
      {"OffsetsEmpty", entry("\"F32\"", "[2]", "[]"), {"'w'", "an array of 0", "data_offsets"}},
      {"OffsetsOne", entry("\"F32\"", "[2]", "[8]"), {"'w'", "an array of 1", "data_offsets"}},
      {"OffsetsThree", entry("\"F32\"", "[2]", "[0,8,8]"), {"'w'", "number 8", "data_offsets"}},
      {"OffsetsNegative", entry("\"F32\"", "[2]", "[-8,0]"), {"'w'", "number -8", "data_offsets"}},
      {"OffsetsText", entry("\"F32\"", "[2]", "[0,\"8\"]"), {"'w'", "'8'", "data_offsets"}},
      {"OffsetsReversed", entry("\"F32\"", "[2]", "[8,0]"), {"'w'", "[8,0]"}},
      {"OffsetsPastTheEnd", entry("\"F32\"", "[4]", "[0,16]"), {"'w'", "[0,16]", "8"}},
      {"OffsetsFarPastTheEnd",
       entry("\"U8\"", "[8]", "[18446744073709551607,18446744073709551615]"),
       {"'w'", "18446744073709551615"}},
      {"TooFewBytes", entry("\"F32\"", "[3]", "[0,8]"), {"'w'", "8 bytes", "12", "F32 [3]"}},
      {"TooManyBytes", entry("\"F16\"", "[2]", "[0,8]"), {"'w'", "8 bytes", "4", "F16 [2]"}},
      {"ScalarOfEightBytes", entry("\"F32\"", "[]", "[0,8]"), {"'w'", "8 bytes", "F32 []"}},
      {"NoTensors", "{}", {"8 bytes at the end"}},
      {"GapAtTheStart", entry("\"F32\"", "[1]", "[4,8]"), {"'w'", "4 bytes"}},
      {"GapAtTheEnd", entry("\"F32\"", "[1]", "[0,4]"), {"4 bytes at the end"}},
      {"GapInside",
       two(R"("shape":[3],"data_offsets":[0,3])", R"("shape":[4],"data_offsets":[4,8])"),
       {"'b'", "1 bytes"}},
      {"Overlap",
       two(R"("shape":[5],"data_offsets":[0,5])", R"("shape":[4],"data_offsets":[4,8])"),
       {"'b'", "'a'", "overlaps"}},
      {"OverlapReversed",
       two(R"("shape":[4],"data_offsets":[4,8])", R"("shape":[5],"data_offsets":[0,5])"),
       {"'b'", "'a'", "overlaps"}},
      {"SameBytesTwice",
       two(R"("shape":[8],"data_offsets":[0,8])", R"("shape":[8],"data_offsets":[0,8])"),
       {"'b'", "'a'", "overlaps"}},
      {"Inside",
       two(R"("shape":[8],"data_offsets":[0,8])", R"("shape":[2],"data_offsets":[3,5])"),
       {"'b'", "'a'", "overlaps"}},
      {"EmptyInside",
       two(R"("shape":[8],"data_offsets":[0,8])", R"("shape":[0],"data_offsets":[4,4])"),
       {"'b'", "'a'", "overlaps"}},
  };
}

class HostileHeader : public testing::TestWithParam<HostileCase> {};

TEST_P(HostileHeader, GivesOneClearLine) {
  const HostileCase& hostile = GetParam();
  const std::string bytes = SafetensorsBytes(hostile.header, "12345678");
  try {
    ParseSafetensors(bytes);
    FAIL() << "accepted: " << hostile.header;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("some.safetensors: "));
    EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    for (const std::string& part : hostile.parts) EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, HostileHeader, testing::ValuesIn(HostileCases()),
                         [](const auto& info) { return info.param.name; });

TEST(HostileSafetensors, HeaderLengths) {
  for (const std::uint64_t length :
       {std::uint64_t{1} << 60, ~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63,
        std::uint64_t{100'000'001}}) {
    std::string bytes = SafetensorsBytes("{}", "");
    std::memcpy(bytes.data(), &length, sizeof(length));
    EXPECT_THAT([&] { ParseSafetensors(bytes); },
                ThrowsMessage<Error>(AllOf(HasSubstr("some.safetensors"), HasSubstr("at most"),
                                           HasSubstr(std::to_string(length)))));
  }
  std::string bytes = SafetensorsBytes("{}", "");
  bytes[0] = 3;
  EXPECT_THAT([&] { ParseSafetensors(bytes); },
              ThrowsMessage<Error>(AllOf(HasSubstr("3 bytes"), HasSubstr("only 2 follow"))));
}

TEST(HostileSafetensors, NamesCannotBreakTheLineOrFillTheScreen) {
  const std::string bytes =
      SafetensorsBytes("{\"a\\nb\\u001b" + std::string(100'000, 'x') + "\":1}", "");
  try {
    ParseSafetensors(bytes);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a?b?xxx"));
    EXPECT_LT(std::strlen(error.what()), 300u);
  }
}

std::string SmallFile() {
  return SafetensorsBytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}} )",
      "\1\2\3\4xyz");
}

// Reads everything an accepted file promises, so that a sanitizer sees any byte out of bounds.
void Touch(const SafetensorsFile& file) {
  std::size_t sum = 0;
  for (const TensorEntry& entry : file.tensors()) {
    for (const std::byte byte : entry.bytes) sum += static_cast<std::size_t>(byte);
    ASSERT_EQ(file.Find(entry.name), &entry);
  }
  ASSERT_LE(sum, std::size_t{255} * 7);
}

TEST(HostileSafetensors, TruncationAtEveryByteIsAnError) {
  const std::string whole = SmallFile();
  EXPECT_NO_THROW(Touch(ParseSafetensors(whole)));
  const TemporaryFolder folder;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // A copy of exactly this size: reads past it are then visible to the address sanitizer.
    const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_THROW(ParseSafetensors({cut.data(), cut.size()}), Error) << length;
    WriteFile(folder / "cut.safetensors", whole.substr(0, length));
    EXPECT_THAT([&] { SafetensorsFile{folder / "cut.safetensors"}; },
                ThrowsMessage<Error>(HasSubstr("cut.safetensors")))
        << length;
  }
  EXPECT_THROW(ParseSafetensors(whole + "x"), Error);
}

TEST(HostileSafetensors, EveryBitFlipOfTheHeaderLoadsOrIsAnError) {
  const std::string whole = SmallFile();
  int loaded = 0, refused = 0;
  for (std::size_t i = 0; i + 7 < whole.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<char> flipped(whole.begin(), whole.end());
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      try {
        Touch(ParseSafetensors({flipped.data(), flipped.size()}));
        ++loaded;  // a letter of a name or of the metadata
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 3 * loaded);
}

TEST(HostileSafetensors, DeepNestingAndManyTensorsAreQuick) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(ParseSafetensors(SafetensorsBytes("{\"w\":" + std::string(1'000'000, '['), "")),
               Error);
  std::string header = "{";
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) +
              R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  const std::string bytes = SafetensorsBytes(header + "}", "");
  const SafetensorsFile file = ParseSafetensors(bytes);
  EXPECT_EQ(file.tensors().size(), static_cast<std::size_t>(kCount));
  EXPECT_NE(file.Find("99999"), nullptr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 10.0);  // well under a second; quadratic time takes far longer
}

TEST(HostileSafetensors, FoldersAndMissingFilesAreNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { SafetensorsFile{folder / "none.safetensors"}; },
              ThrowsMessage<Error>(HasSubstr("none.safetensors")));
  EXPECT_THROW(SafetensorsFile{folder.path()}, Error);
}

}  // namespace
}  // namespace clearhead
