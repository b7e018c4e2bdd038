// SPDX-License-Identifier: MIT
// GGUF files (llama.cpp's), versions 2 and 3: magic, counts, named values, a list of tensors, their
// bytes. Read only. Everything is little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/file.h"

namespace clearhead {

// The types of elements that can be read; others are known by name only, to be refused by it.
enum class GgufType : std::uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBF16 = 30 };

// "Q4_K" for 12; "type 99" for what is not known.
std::string GgufTypeName(std::uint32_t type);

struct GgufTensor {
  std::string name;
  std::uint32_t type = 0;            // a GgufType, or another's number
  std::vector<std::int64_t> shape;   // outermost first, as everywhere else here
  std::span<const std::byte> bytes;  // empty where the type cannot be read

  std::int64_t size() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
};

// Numbers as double or, where they are whole, as int64; flags are whole numbers.
using GgufValue = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

// A file whose header has been checked completely: every tensor that can be read lies inside it.
// Lifetime: tensors point into the map (or into the bytes of FromBytes). Throws Error, one line
// naming the file and what is wrong with it.
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  static GgufFile FromBytes(std::span<const std::byte> bytes, std::string source);

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* Find(std::string_view name) const;  // null if there is none
  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const std::string& source() const { return source_; }

  // A named value; none if it is absent. Throws Error if it is of another kind.
  std::optional<std::int64_t> Whole(std::string_view name) const;
  std::optional<double> Number(std::string_view name) const;
  std::optional<std::string> Text(std::string_view name) const;

 private:
  GgufFile() = default;
  void Parse(std::span<const std::byte> file);

  std::optional<MappedFile> map_;
  std::string source_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
  std::map<std::string, GgufValue, std::less<>> values_;
};

// Whether a file begins as GGUF files do.
bool IsGguf(std::span<const std::byte> bytes);

// All values as fp32; `out` holds tensor.size() floats. Throws Error naming the type if it cannot
// be read.
void ConvertToFloat(const GgufTensor& tensor, float* out);

}  // namespace clearhead
