// SPDX-License-Identifier: MIT
#include "viewer/results.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "core/error.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = 32 << 20;
constexpr std::size_t kMaxFiles = 256;
constexpr std::array<std::string_view, 4> kShown = {"clearhead.circuit/1", "clearhead.circuits/1",
                                                    "clearhead.scatter.1",
                                                    "clearhead.correlation.1"};

// "out" names a place on the machine where the result was made; the page has no use for it.
void AddIfShown(const fs::path& folder, const fs::path& file, std::vector<ResultFile>* results) {
  if (file.extension() != ".json" || results->size() >= kMaxFiles) return;
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kMaxBytes) return;
  Json json;
  try {
    json = ReadJsonFile(file, kMaxBytes);
  } catch (const Error&) {
    return;  // somebody else's file
  }
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string()) return;
  const auto schema = json["schema"].get<std::string>();
  if (std::find(kShown.begin(), kShown.end(), schema) == kShown.end()) return;
  json.erase("out");
  results->push_back({fs::relative(file, folder, error).generic_string(), schema, std::move(json)});
}

// `circuit A B --out` writes the pair into one file and each model into one of its own beside it:
// the pair says it all.
void DropPartsOfPairs(std::vector<ResultFile>* results) {
  std::vector<Json> parts;
  for (const ResultFile& result : *results) {
    if (result.schema != "clearhead.circuits/1" || !result.json.contains("models")) continue;
    for (const Json& part : result.json["models"]) parts.push_back(part);
  }
  std::erase_if(*results, [&](const ResultFile& result) {
    return std::find(parts.begin(), parts.end(), result.json) != parts.end();
  });
}

}  // namespace

std::vector<ResultFile> ReadResults(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) Fail("--results '{}' is not a folder", folder.string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    files.push_back(entry.path());
    if (!entry.is_directory(error)) continue;
    for (const auto& inner : fs::directory_iterator(entry.path(), error)) {
      files.push_back(inner.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<ResultFile> results;
  for (const fs::path& file : files) AddIfShown(folder, file, &results);
  DropPartsOfPairs(&results);
  if (results.empty()) {
    Fail("'{}' has no result of `clearhead circuit --out` or `clearhead scatter --json` in it",
         folder.string());
  }
  return results;
}

}  // namespace clearhead
