// SPDX-License-Identifier: MIT
// Watching and stopping long work. Both are called on the thread that called the library, and may
// throw: what they throw reaches the caller.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace clearhead::api {

struct Progress {
  std::string_view label, unit;  // "sparsify", "tok"
  std::string_view extra;        // for people: "step 3/200 loss 1.234"
  std::int64_t done = 0;
  std::int64_t total = 0;  // 0: unknown
  bool finished = false;   // the last report of this piece of work, whatever became of it
};

struct Control {
  std::function<void(const Progress&)> progress = {};
  std::function<bool()> should_stop = {};  // asked often; true ends in Interrupted
};

}  // namespace clearhead::api
