// SPDX-License-Identifier: MIT
// YAML: yaml-cpp, wrapped once. A document becomes Json, so that whoever reads configurations knows
// one kind of value.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/json.h"

namespace clearhead {

// Plain scalars are null, booleans, whole numbers and finite numbers where they look like one, else
// text; quoted ones are text. Throws Error("<source>: not valid YAML ...") with line and column.
// Refuses a second document, tags, aliases, keys that are no text or appear twice, and nesting
// deeper than 64.
Json ParseYaml(std::string_view text, std::string_view source);

Json ReadYamlFile(const std::filesystem::path& path, std::uint64_t max_bytes = 1 << 20);

// A mapping of scalars and of lists of scalars, a line each.
std::string ToYaml(const Json& mapping);

}  // namespace clearhead
