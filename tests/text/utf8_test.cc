// SPDX-License-Identifier: MIT
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

TEST(Utf8, OneReplacementPerMaximalIllFormedPart) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"plain ascii, longer than eight", "plain ascii, longer than eight"},
      {"é日🙂", "é日🙂"},
      {"\x80", "\uFFFD"},
      {"\xC0\xAF", "\uFFFD\uFFFD"},                      // overlong
      {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},            // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},            // surrogate
      {"\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},  // beyond U+10FFFF
      {"\xF5", "\uFFFD"},
      {"\xE6\x97", "\uFFFD"},      // cut off at the end
      {"\xE6\x97!", "\uFFFD!"},    // cut off by another character
      {"\xF0\x9F\x99", "\uFFFD"},  //
      {"\xF0\x9F\x99\xF0", "\uFFFD\uFFFD"},
      {"\xF0\x80", "\uFFFD\uFFFD"},
      {"12345678\xFF"
       "12345678",
       "12345678\uFFFD12345678"},
      {"a\xF1\x80\x80\xE1\x80\xC2"
       "b\x80"
       "c",
       "a\uFFFD\uFFFD\uFFFD"
       "b\uFFFD"
       "c"},  // Unicode's example
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(ToValidUtf8(bytes), text);
}

TEST(Utf8, ResultsAreValidAndValidTextStays) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string valid = ToValidUtf8(RandomNearUtf8(seed, seed));
    EXPECT_EQ(FindIllFormed(valid), valid.size());
    EXPECT_EQ(ToValidUtf8(valid), valid);
  }
}

}  // namespace
}  // namespace clearhead
