// SPDX-License-Identifier: MIT
// The bytes of a safetensors file with a header given as text, right or wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "core/safetensors.h"

namespace clearhead {

inline std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes.append(header).append(data);
}

// `bytes` must outlive the result.
inline SafetensorsFile ParseSafetensors(std::string_view bytes) {
  return SafetensorsFile::FromBytes(std::as_bytes(std::span(bytes)), "some.safetensors");
}

}  // namespace clearhead
