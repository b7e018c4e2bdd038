// SPDX-License-Identifier: MIT
#include "heads/head_id.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

namespace clearhead {
namespace {

// "<before>NUMBER<between>NUMBER", the words compared without regard to case.
std::optional<HeadId> ParseAs(std::string_view text, std::string_view before,
                              std::string_view between) {
  const auto skip = [&](std::string_view word) {
    if (text.size() < word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (std::tolower(static_cast<unsigned char>(text[i])) != word[i]) return false;
    }
    text.remove_prefix(word.size());
    return true;
  };
  const auto number = [&](std::int64_t* value) {
    if (text.empty() || !std::isdigit(static_cast<unsigned char>(text[0]))) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc();
  };
  HeadId id;
  const bool good =
      skip(before) && number(&id.layer) && skip(between) && number(&id.head) && text.empty();
  return good ? std::optional(id) : std::nullopt;
}

}  // namespace

std::string ToText(HeadId id) { return fmt::format("L{}H{}", id.layer, id.head); }

std::optional<HeadId> ParseHead(std::string_view text) {
  if (const auto id = ParseAs(text, "l", "h")) return id;
  if (const auto id = ParseAs(text, "a", ".h")) return id;
  return ParseAs(text, "", ".");
}

}  // namespace clearhead
