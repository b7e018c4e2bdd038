// SPDX-License-Identifier: MIT
#include "core/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "support/golden.h"
#include "support/safetensors_bytes.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Extents = std::vector<std::int64_t>;

std::vector<float> Floats(const TensorEntry& entry) {
  std::vector<float> values(static_cast<std::size_t>(entry.size()));
  ConvertToFloat(entry, values.data());
  return values;
}

std::string Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Safetensors, ReadsAHandMadeFile) {
  const float values[] = {1.5f, -2.0f};
  const std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  // The second tensor comes first in the data, the header has padding and metadata.
  const std::string bytes =
      SafetensorsBytes(R"({"__metadata__":{"format":"pt","k":""},)"
                       R"("mask":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
                       R"("w é\n":{"data_offsets":[0,8],"shape":[1,2],"dtype":"F32"}}   )",
                       data + "abc");
  const SafetensorsFile file = ParseSafetensors(bytes);
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "mask");
  EXPECT_EQ(Text(file.tensors()[0].bytes), "abc");
  EXPECT_EQ(file.tensors()[0].dtype, DType::kU8);
  const TensorEntry& w = file.Get("w é\n");
  EXPECT_EQ(w.shape, (Extents{1, 2}));
  EXPECT_EQ(w.size(), 2);
  EXPECT_EQ(Floats(w), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"k", ""}}));
  EXPECT_EQ(file.Find("missing"), nullptr);
  EXPECT_THAT([&] { file.Get("missing"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("some.safetensors"), HasSubstr("'missing'"))));
}

TEST(Safetensors, ReadsWithoutTensorsAndWithEmptyOnes) {
  EXPECT_TRUE(ParseSafetensors(SafetensorsBytes("{}", "")).tensors().empty());
  const std::string bytes =
      SafetensorsBytes(R"({"z":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                       R"("s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                       R"("y":{"dtype":"F16","shape":[3,0,5],"data_offsets":[8,8]},)"
                       R"("x":{"dtype":"I8","shape":[1,1,1,1,1,1,1,1],"data_offsets":[8,9]}})",
                       "123456789");
  const SafetensorsFile file = ParseSafetensors(bytes);
  EXPECT_EQ(file.Get("z").size(), 0);
  EXPECT_EQ(file.Get("s").size(), 1);
  EXPECT_TRUE(file.Get("s").shape.empty());
  EXPECT_EQ(file.Get("y").size(), 0);
  EXPECT_TRUE(Floats(file.Get("y")).empty());
  EXPECT_EQ(file.Get("x").shape.size(), 8u);
}

TEST(Safetensors, EntriesSurviveMoves) {
  const TemporaryFolder folder;
  const float value = 3;
  WriteSafetensors(folder / "a", std::vector<TensorToWrite>{{"x", DType::kF32, {1}, &value}});
  std::vector<SafetensorsFile> files;
  for (int i = 0; i < 5; ++i) files.emplace_back(folder / "a");  // reallocates
  for (const SafetensorsFile& file : files) EXPECT_EQ(Floats(file.Get("x"))[0], 3);
}

TEST(Safetensors, RoundTripsEveryType) {
  const TemporaryFolder folder;
  std::string raw(6 * 8, '\0');
  std::iota(raw.begin(), raw.end(), static_cast<char>(100));
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto size = static_cast<std::size_t>(6 * DTypeSize(dtype));
    tensors.push_back({.name = "raw." + std::string(DTypeName(dtype)),
                       .dtype = dtype,
                       .shape = {2, 1, 3},
                       .raw = std::as_bytes(std::span(raw)).first(size)});
  }
  const std::map<std::string, std::string> metadata = {{"b", "\"quoted\"\n"}, {"a", "é"}};
  WriteSafetensors(folder / "a", tensors, metadata);
  const SafetensorsFile file(folder / "a");
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(tensors.size(), 15u);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorEntry& entry = file.tensors()[i];
    EXPECT_EQ(entry.name, tensors[i].name);
    EXPECT_EQ(entry.dtype, tensors[i].dtype);
    EXPECT_EQ(entry.shape, tensors[i].shape);
    EXPECT_EQ(Text(entry.bytes), Text(tensors[i].raw));
  }
  EXPECT_EQ(file.metadata(), metadata);
}

TEST(Safetensors, ConvertsFloatsWhileWriting) {
  const TemporaryFolder folder;
  // More than one conversion chunk, and not a multiple of it.
  constexpr std::int64_t kSize = (1 << 18) * 2 + 13;
  std::vector<float> values(kSize);
  RandomStream random(5);
  for (float& value : values) value = static_cast<float>(random.Normal());
  std::vector<TensorToWrite> tensors;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kBF16}) {
    tensors.push_back({std::string(DTypeName(dtype)), dtype, {kSize}, values.data()});
  }
  WriteSafetensors(folder / "a", tensors);
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(Floats(file.Get("F32")), values);
  const std::vector<float> half = Floats(file.Get("F16")), bfloat = Floats(file.Get("BF16"));
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(half[i], HalfToFloat(FloatToHalf(values[i]))) << i;
    ASSERT_EQ(bfloat[i], BFloat16ToFloat(FloatToBFloat16(values[i]))) << i;
  }
}

TEST(Safetensors, WritesDeterministicAlignedFilesInTheOrderGiven) {
  const TemporaryFolder folder;
  const float values[] = {1, 2, 3};
  for (std::size_t name_length = 1; name_length < 70; ++name_length) {
    const std::vector<TensorToWrite> tensors = {
        {std::string(name_length, 'z'), DType::kF32, {3}, values},
        {"a", DType::kBF16, {1, 1}, values}};
    WriteSafetensors(folder / "one", tensors, {{"k", "v"}});
    WriteSafetensors(folder / "two", tensors, {{"k", "v"}});
    const std::string bytes = ReadFile(folder / "one");
    ASSERT_EQ(bytes, ReadFile(folder / "two"));
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    ASSERT_EQ((8 + header) % 64, 0u);
    ASSERT_EQ(bytes.size(), 8 + header + 14);
    const SafetensorsFile file(folder / "one");
    ASSERT_EQ(file.tensors()[0].name.size(), name_length);
    ASSERT_TRUE(AlignedFor<float>(file.tensors()[0]));
  }
}

TEST(Safetensors, WritesNothingAndEmptyTensors) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "none", {});
  EXPECT_TRUE(SafetensorsFile(folder / "none").tensors().empty());
  WriteSafetensors(folder / "meta", {}, {{"k", "v"}});
  EXPECT_EQ(SafetensorsFile(folder / "meta").metadata().at("k"), "v");
  WriteSafetensors(folder / "empty", std::vector<TensorToWrite>{{"e", DType::kF32, {2, 0}}});
  EXPECT_EQ(SafetensorsFile(folder / "empty").Get("e").shape, (Extents{2, 0}));
}

TEST(Safetensors, FailedWritesLeaveNothing) {
  const TemporaryFolder folder;
  WriteFile(folder / "file", "x");
  const float value = 1;
  const std::vector<TensorToWrite> good = {{"x", DType::kF32, {1}, &value}};
  EXPECT_THAT([&] { WriteSafetensors(folder / "file" / "a.safetensors", good); },
              ThrowsMessage<Error>(HasSubstr("a.safetensors")));
  const std::byte raw[3] = {};
  const std::vector<std::vector<TensorToWrite>> wrong = {
      {{"x", DType::kF32, {1}, &value}, {"x", DType::kF32, {1}, &value}},  // a name twice
      {{"__metadata__", DType::kF32, {1}, &value}},
      {{"x", DType::kI32, {1}, &value}},                                // fp32 values as integers
      {{.name = "x", .dtype = DType::kI32, .shape = {1}, .raw = raw}},  // 3 bytes for 4
      {{"x", DType::kF32, {1}}},                                        // no data at all
      {{"x", DType::kF32, {1, 1, 1, 1, 1, 1, 1, 1, 1}, &value}},
      {{"x", DType::kF32, {std::int64_t{1} << 62, 0}, &value}},
  };
  for (const std::vector<TensorToWrite>& tensors : wrong) {
    EXPECT_THROW(WriteSafetensors(folder / "b", tensors), std::logic_error);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Safetensors, OnlyFloatsConvert) {
  const std::string bytes =
      SafetensorsBytes(R"({"ids":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "1234");
  float out = 0;
  EXPECT_THAT([&] { ConvertToFloat(ParseSafetensors(bytes).tensors()[0], &out); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'ids'"), HasSubstr("I32"))));
}

// Files that another library wrote: one model stored as F32, F16 and BF16. Rounding the first must
// give the bytes of the other two.
TEST(Safetensors, AgreesWithGoldenFilesAndTheirRounding) {
  const fs::path models = fs::path(CLEARHEAD_TEST_DATA) / "golden/models/c";
  const SafetensorsFile full(models / "prefix/model.safetensors");
  EXPECT_EQ(full.metadata().at("format"), "pt");
  EXPECT_EQ(full.Get("transformer.wte.weight").shape, (Extents{61, 24}));
  for (const auto& [folder, dtype] :
       {std::pair("f16", DType::kF16), std::pair("bf16", DType::kBF16)}) {
    const SafetensorsFile rounded(models / folder / "model.safetensors");
    ASSERT_EQ(rounded.tensors().size(), full.tensors().size());
    for (const TensorEntry& entry : full.tensors()) {
      const TensorEntry& expected = rounded.Get(entry.name);
      ASSERT_EQ(expected.dtype, dtype);
      ASSERT_EQ(expected.shape, entry.shape);
      const std::vector<float> values = Floats(entry);
      std::vector<std::byte> bytes(expected.bytes.size());
      ConvertFromFloat(values.data(), entry.size(), dtype, bytes.data());
      EXPECT_EQ(Text(bytes), Text(expected.bytes)) << folder << " " << entry.name;
    }
  }
}

}  // namespace
}  // namespace clearhead
