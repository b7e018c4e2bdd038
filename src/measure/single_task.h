// SPDX-License-Identifier: MIT
// One measurement by its name, every run timed: what scripts/bench-peers compares with other
// programs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace clearhead {

struct SingleTask {
  std::string_view name;
  std::string_view what;
  std::int64_t tokens;  // of one run; 0 where only the time says something
};

std::span<const SingleTask> SingleTasks();

// Throws Error that lists the names.
const SingleTask& FindSingleTask(std::string_view name);

// Seconds of each of `runs` runs after one warm-up, in fp32. `config` is that of the model, where
// the task has one; it must take 1024 positions.
std::vector<double> TimeSingleTask(const SingleTask& task, const ModelConfig& config, int runs);

}  // namespace clearhead
