// SPDX-License-Identifier: MIT
// metrics.jsonl: one JSON object per line and step. Appended, never rewritten; a resumed run drops
// the lines of steps that it will do again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "core/json.h"

namespace clearhead {

class MetricsLog {
 public:
  // Keeps the lines whose "step" is below `first_step`, drops the others (a torn last line
  // included).
  MetricsLog(const std::filesystem::path& path, std::int64_t first_step);

  void Append(const Json& line);
  // Returns when all lines are on the disk.
  void Sync();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// All complete lines of a log.
std::vector<Json> ReadMetrics(const std::filesystem::path& path);

}  // namespace clearhead
