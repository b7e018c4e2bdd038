// SPDX-License-Identifier: MIT
// Safetensors files: an 8-byte little-endian header length, a JSON header
//   {"__metadata__": {key: text}, name: {"dtype": "F32", "shape": [..], "data_offsets": [begin,
//   end]}}
// and the tensors' bytes, little-endian and row-major, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace clearhead {

// One tensor of an open file. `bytes` points into the file's map and has no alignment to rely on.
struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // outermost first; empty for a scalar
  std::span<const std::byte> bytes;

  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) / DTypeSize(dtype); }
};

// A file whose header has been checked completely: every entry's type, shape, offsets and bytes
// agree. Lifetime: entries point into the map (or into the bytes of FromBytes); valid while this
// lives, moves included. Threads: reading is safe from any thread. Failure: constructors throw
// Error, one line naming the file and the tensor.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  // Views `bytes`, which must outlive the object; `source` names them in messages.
  static SafetensorsFile FromBytes(std::span<const std::byte> bytes, std::string source);

  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in the header's order
  const TensorEntry* Find(std::string_view name) const;                 // null if there is none
  const TensorEntry& Get(std::string_view name) const;  // throws Error if there is none
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& source() const { return source_; }

 private:
  SafetensorsFile() = default;
  void Parse(std::span<const std::byte> file);

  std::optional<MappedFile> map_;
  std::string source_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;  // names live in tensors_
  std::map<std::string, std::string> metadata_;
};

// Whether the bytes may be read in place as an array of T.
template <typename T>
bool AlignedFor(const TensorEntry& entry) {
  return reinterpret_cast<std::uintptr_t>(entry.bytes.data()) % alignof(T) == 0;
}

// All values as fp32, in parallel for large tensors; `out` holds entry.size() floats. Throws Error
// unless the tensor is F32, F16 or BF16.
void ConvertToFloat(const TensorEntry& entry, float* out);

// A tensor for WriteSafetensors: either fp32 values, converted to `dtype` (F32, F16, BF16) while
// writing, or the raw bytes of any dtype (counters, fp64), in one piece or several.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const float* data = nullptr;                             // if not null
  std::span<const std::byte> raw = {};                     // otherwise
  std::vector<std::span<const std::byte>> raw_parts = {};  // and behind it
  // or, if set, all bytes in their order, made while the file is written
  std::function<void(const std::function<void(std::span<const std::byte>)>& write)> make = {};
};

// Writes the tensors in the order given, complete or not at all; equal input gives equal bytes. The
// data start at a multiple of 64. Converts through a buffer of bounded size.
void WriteSafetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace clearhead
