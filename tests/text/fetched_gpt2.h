// SPDX-License-Identifier: MIT
// GPT-2's own tokenizer, which scripts/fetch-test-data downloads.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "text/tokenizer.h"

namespace clearhead {

// Nothing, and a failed test, if the files are not there.
inline std::optional<Tokenizer> FetchedGpt2() {
  const std::filesystem::path folder = std::filesystem::path(CLEARHEAD_FETCHED_DATA) / "gpt2";
  if (!std::filesystem::exists(folder / "vocab.json")) {
    ADD_FAILURE() << "GPT-2's vocabulary is not in " << folder
                  << ": run scripts/fetch-test-data with the build folder";
    return std::nullopt;
  }
  return Tokenizer::Load(folder);
}

}  // namespace clearhead
