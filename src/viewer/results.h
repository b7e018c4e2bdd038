// SPDX-License-Identifier: MIT
// Results that other commands wrote, for the page's Circuit and Scatter views.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"

namespace clearhead {

struct ResultFile {
  std::string name;    // relative to the folder, for people
  std::string schema;  // clearhead.circuit/1, clearhead.scatter.1, ...
  Json json;
};

// The .json files in the folder and the folders in it, one level deep, whose schema the page can
// show, in order of their names. Other files are passed over. Throws Error if there is none.
std::vector<ResultFile> ReadResults(const std::filesystem::path& folder);

}  // namespace clearhead
