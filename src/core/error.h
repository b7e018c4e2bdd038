// SPDX-License-Identifier: MIT
// Errors. Two kinds, because two different people must act:
//   Error        the outside world is wrong (a file, an argument, the disk): the user acts. The
//   message
//                is one line: what was found, what was expected, what to do. The program exits
//                with 1.
//   UsageError   the command line itself is wrong. The program exits with 2.
//   Check()      our own code is wrong: throws std::logic_error with the place; a developer acts.
// The library never prints and never exits.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace clearhead {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void FailUsage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// The place is the caller's. (Compiler built-ins, because clang 14, which builds the fuzz targets,
// has no std::source_location.)
inline void Check(bool holds, std::string_view what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!holds) {
    throw std::logic_error(fmt::format("internal error at {}:{}: {}", file, line, what));
  }
}

}  // namespace clearhead
