// SPDX-License-Identifier: MIT
// UTF-8 as bytes arrive: well-formed or not.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace clearhead {

struct Utf8Part {
  std::size_t length;  // at least 1
  bool well_formed;    // false: a maximal ill-formed part, which U+FFFD stands for
};

// The character, or the maximal ill-formed part, that starts at `position` (< text.size()). A
// maximal ill-formed part is the longest beginning of some well-formed character that does not go
// on as one, else a single byte (Unicode 15, section 3.9, "U+FFFD Substitution of Maximal
// Subparts"; Python's errors="replace" and the web do the same).
Utf8Part NextUtf8Part(std::string_view text, std::size_t position);

// The position of the first ill-formed part at or after `from`; text.size() if there is none.
std::size_t FindIllFormed(std::string_view text, std::size_t from = 0);

// The bytes with one U+FFFD for every maximal ill-formed part: always valid UTF-8.
std::string ToValidUtf8(std::string_view bytes);

}  // namespace clearhead
