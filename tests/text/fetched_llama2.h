// SPDX-License-Identifier: MIT
// Llama 2's tokenizer.bin, which scripts/fetch-test-data downloads with stories15M.
#pragma once

#include <filesystem>
#include <string>

#include "core/file.h"

namespace clearhead {

inline std::filesystem::path FetchedStories() {
  return std::filesystem::path(CLEARHEAD_FETCHED_DATA) / "stories15M";
}

// Empty if the file is not there: then the test is to be skipped with this message.
inline std::string FetchedTokenizerBin() {
  const std::filesystem::path file = FetchedStories() / "tokenizer.bin";
  return std::filesystem::exists(file) ? ReadFile(file) : std::string();
}

inline constexpr const char* kNoTokenizerBin =
    "Llama 2's tokenizer.bin is not there: scripts/fetch-test-data could not fetch it, or did not "
    "run";

}  // namespace clearhead
