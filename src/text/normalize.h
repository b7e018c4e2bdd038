// SPDX-License-Identifier: MIT
// What happens to text before it is split.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace clearhead {

// U+2581 as the space it stands for.
std::string MarksToSpaces(std::string_view text);

// Unicode's normalization form C (letters with their accents as one character where there is
// one); nothing if the text has it already. Ill-formed parts (utf8.h) stay as they are, and nothing
// is composed across them.
std::optional<std::string> ToNfc(std::string_view text);

}  // namespace clearhead
