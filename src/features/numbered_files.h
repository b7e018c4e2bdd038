// SPDX-License-Identifier: MIT
// Files that are numbered by layer: layer_0.safetensors, layer_1.safetensors, ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace clearhead {

std::filesystem::path NumberedFile(const std::filesystem::path& folder, std::string_view prefix,
                                   std::int64_t number);

// The numbers of those in the folder, ascending.
std::vector<std::int64_t> NumbersOf(const std::filesystem::path& folder, std::string_view prefix);

// How many there are. Refuses none, and gaps.
std::int64_t CountNumbered(const std::filesystem::path& folder, std::string_view prefix);

}  // namespace clearhead
