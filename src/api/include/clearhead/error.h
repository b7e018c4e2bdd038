// SPDX-License-Identifier: MIT
// What the library throws. Every message is one line: what was found, what was expected, what to
// do. Beside these only std::bad_alloc, and what a caller's own callback throws, which passes
// through and leaves everything usable.
#pragma once

#include <clearhead/export.h>

#include <stdexcept>

namespace clearhead::api {

// The outside world is not as needed: a file, an argument, the disk.
class CLEARHEAD_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A command's words were not understood (command.h).
class CLEARHEAD_API UsageError : public Error {
 public:
  using Error::Error;
};

// should_stop said so. What can go on later has saved itself and says how.
class CLEARHEAD_API Interrupted : public Error {
 public:
  using Error::Error;
};

// The library itself is wrong; the message names the place.
class CLEARHEAD_API InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace clearhead::api
