// SPDX-License-Identifier: MIT
// Fields of the page's questions: each is what it must be, or the line says what it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/json.h"

namespace clearhead {

inline std::int64_t WholeNumber(const Json& json, std::string_view name, std::int64_t low,
                                std::int64_t high) {
  if (!json.is_number_integer() || json.get<double>() < static_cast<double>(low) ||
      json.get<double>() > static_cast<double>(high)) {
    Fail("'{}' is {}; it must be a whole number from {} to {}", name, ToText(json, -1), low, high);
  }
  return json.get<std::int64_t>();
}

inline const std::string& Text(const Json& json, std::string_view name) {
  if (!json.is_string()) Fail("'{}' is {}; it must be a text", name, ToText(json, -1));
  return json.get_ref<const std::string&>();
}

}  // namespace clearhead
