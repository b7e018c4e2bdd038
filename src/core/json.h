// SPDX-License-Identifier: MIT
// JSON: nlohmann's library, wrapped once so that every parse error names its source and every file
// has one way in and out. Objects keep the order of insertion: results read as they were written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace clearhead {

using Json = nlohmann::ordered_json;

// Throws Error("<source>: not valid JSON ...") with line and column. Refuses duplicate keys and
// nesting deeper than 64, which no file of ours has and which hostile ones use.
Json ParseJson(std::string_view text, std::string_view source);

Json ReadJsonFile(const std::filesystem::path& path, std::uint64_t max_bytes = 1ull << 30);

// Two-space indent and a final newline, complete or absent. Invalid UTF-8 becomes U+FFFD.
void WriteJsonFile(const std::filesystem::path& path, const Json& value);

std::string ToText(const Json& value, int indent = 2);

}  // namespace clearhead
