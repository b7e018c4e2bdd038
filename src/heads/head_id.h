// SPDX-License-Identifier: MIT
// Names of attention heads: layer and head, both from zero, written L5H1.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace clearhead {

struct HeadId {
  std::int64_t layer = 0, head = 0;
  auto operator<=>(const HeadId&) const = default;
};

std::string ToText(HeadId id);  // L5H1

// L5H1 (in any case), 5.1 or a5.h1.
std::optional<HeadId> ParseHead(std::string_view text);

}  // namespace clearhead
