// SPDX-License-Identifier: MIT
// Any bytes: ParseJson gives a document that survives a round trip through text, or throws Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace clearhead;
  try {
    const Json value = ParseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (ParseJson(ToText(value), "again") != value) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
