// SPDX-License-Identifier: MIT
#include "train/metrics_log.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.h"
#include "core/file.h"

namespace clearhead {

std::vector<Json> ReadMetrics(const std::filesystem::path& path) {
  std::vector<Json> lines;
  const std::string text = ReadFile(path);
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // torn by an interruption
    lines.push_back(ParseJson(std::string_view(text).substr(begin, end - begin), path.string()));
    begin = end + 1;
  }
  return lines;
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t first_step) : path_(path) {
  std::string kept;
  std::error_code error;
  if (first_step > 0 && std::filesystem::exists(path, error)) {
    for (const Json& line : ReadMetrics(path)) {
      if (line.value("step", std::int64_t{0}) < first_step) kept += ToText(line, -1) + "\n";
    }
  }
  WriteFile(path, kept);
  file_.reset(std::fopen(path.c_str(), "ae"));
  if (!file_) Fail("cannot write '{}': {}", path.string(), std::strerror(errno));
}

void MetricsLog::Sync() {
  if (::fsync(::fileno(file_.get())) != 0 && errno != EINVAL) {
    Fail("cannot write '{}': {}", path_.string(), std::strerror(errno));
  }
}

void MetricsLog::Append(const Json& line) {
  const std::string text = ToText(line, -1) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0) {
    Fail("cannot write '{}': {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace clearhead
