// SPDX-License-Identifier: MIT
// Any bytes: SafetensorsFile throws Error, or every entry it gives is wholly inside the bytes.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace clearhead;
  try {
    const SafetensorsFile file =
        SafetensorsFile::FromBytes(std::as_bytes(std::span(data, size)), "fuzz");
    std::size_t total = 0;
    for (const TensorEntry& entry : file.tensors()) {
      if (file.Find(entry.name) != &entry) std::abort();
      std::int64_t product = 1;  // signed: the sanitizer reports an overflow
      for (const std::int64_t extent : entry.shape) product *= extent;
      if (product != entry.size()) std::abort();
      total += entry.bytes.size();
      volatile std::uint8_t sink = 0;
      for (const std::byte byte : entry.bytes) sink = static_cast<std::uint8_t>(byte);
      static_cast<void>(sink);
      if (IsConvertibleFloat(entry.dtype)) {
        std::vector<float> values(static_cast<std::size_t>(entry.size()));
        ConvertToFloat(entry, values.data());
      }
    }
    if (total > size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
