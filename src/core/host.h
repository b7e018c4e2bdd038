// SPDX-License-Identifier: MIT
// Who a command works for. In the program nobody is named: results go to stdout, progress to a line
// on stderr, and Ctrl-C is a signal. A caller of the library names itself with a HostScope, and
// gets all three as calls on its own thread; nothing of the process is touched then.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace clearhead {

// Long work that was asked to stop, at a good place.
class Interrupted : public Error {
 public:
  using Error::Error;
};

struct ProgressReport {
  std::string_view label, unit, extra;
  std::int64_t done = 0, total = 0;  // total 0: unknown
  bool finished = false;             // the last report of this piece of work, whatever became of it
};

// What is empty stays the program's own way.
struct Host {
  std::function<void(std::string_view)> print = {};  // results
  std::function<void(const ProgressReport&)> progress = {};
  std::function<bool()> should_stop = {};
};

// While it lives, the calling thread works for `host`; then for the one from before.
class HostScope {
 public:
  explicit HostScope(const Host* host);
  ~HostScope();
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  const Host* before_;
};

// Null: the program's own ways.
const Host* CurrentHost();

// Work that saves itself before it stops asks by itself; while one of these lives, progress does
// not throw.
class StopsItself {
 public:
  StopsItself();
  ~StopsItself();
  StopsItself(const StopsItself&) = delete;
  StopsItself& operator=(const StopsItself&) = delete;
};

// Throws Interrupted if the host wants the work to stop.
void StopIfAsked();

}  // namespace clearhead
