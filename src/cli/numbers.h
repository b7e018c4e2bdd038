// SPDX-License-Identifier: MIT
// Checks of numbers on the command line. CLI11's own let "nan" through, wrap "-1" around where the
// option is unsigned, and print the largest double with its 309 digits.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include "cli/options.h"

namespace clearhead::cli {

inline ValueCheck NumberCheck(bool (*accept)(double), const std::string& kind) {
  return Judge([accept, kind](const std::string& text) {
    double value = 0.0;
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    const bool good = error == std::errc() && next == end && std::isfinite(value) && accept(value);
    return good ? std::string() : fmt::format("'{}' is not a {}", text, kind);
  });
}

inline ValueCheck PositiveNumber() {
  return NumberCheck([](double value) { return value > 0.0; }, "positive number");
}
inline ValueCheck NonNegativeNumber() {
  return NumberCheck([](double value) { return value >= 0.0; }, "number from 0 on");
}

// CLI11 takes the nearest where a number does not fit the option.
inline ValueCheck WholeNumber() {
  return Judge([](const std::string& text) {
    std::uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    const bool good = error == std::errc() && next == end;
    return good ? std::string() : fmt::format("'{}' is not a whole number below 2^64", text);
  });
}

}  // namespace clearhead::cli
