// SPDX-License-Identifier: MIT
// Finds added tokens in text: leftmost first, the longest of those that start at one place.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace clearhead {

enum class SpecialTokens {
  kRecognise,  // "<|endoftext|>" in the text is the special token
  kAsText,     // it is thirteen characters like any others
};

// A stretch of text: an added token where `token` has its id, else ordinary text.
struct TextSegment {
  std::string_view text;
  std::optional<std::int32_t> token;
  bool first = false;      // the whole text starts here
  bool continues = false;  // cut off from a longer stretch: no space is put before it
};

class AddedTokenFinder {
 public:
  // What is looked for (not empty), and the token it is.
  struct Wanted {
    std::string content;
    std::int32_t id;
    bool special;
  };
  explicit AddedTokenFinder(std::vector<Wanted> wanted);

  bool empty() const { return wanted_.empty(); }

  // Appends the parts of a segment of ordinary text.
  void Split(const TextSegment& segment, SpecialTokens special,
             std::vector<TextSegment>* parts) const;

  // True if some token could cross a place where text may be cut (IsSafeCut).
  bool HasInnerSpace() const;

 private:
  const Wanted* Match(std::string_view text, SpecialTokens special) const;

  std::vector<Wanted> wanted_;
  std::array<std::vector<std::int32_t>, 256> by_first_byte_;  // the longest first
};

}  // namespace clearhead
