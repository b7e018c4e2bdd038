// SPDX-License-Identifier: MIT
#include "text/normalize.h"

#include <gtest/gtest.h>

#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

TEST(Normalize, ComposesWhereUnicodeHasACharacter) {
  EXPECT_EQ(ToNfc("cafe\u0301"), "caf\u00E9");
  EXPECT_EQ(ToNfc("A\u030A \u212B"), "\u00C5 \u00C5");  // the angstrom sign is an A with ring
  EXPECT_EQ(ToNfc("\u1112\u1161\u11AB"), "\uD55C");     // Hangul by rule, not by table
  EXPECT_EQ(ToNfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(ToNfc("a\u0323\u0302"), "\u1EAD");
  EXPECT_EQ(ToNfc("a\u0302\u0323"), "\u1EAD") << "marks are ordered before they are joined";
  EXPECT_EQ(ToNfc("\u0958"), "\u0915\u093C") << "excluded from composition";
  EXPECT_EQ(ToNfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(ToNfc(">\u0338"), "\u226F");
}

TEST(Normalize, LeavesWhatIsNormalAlone) {
  for (const char* text : {"", "plain ASCII\n", "caf\u00E9", "\uD55C\uAD6D", "\u65E5\u672C",
                           "\U0001F642", "q\u0323\u0307", "\uFB01", "\u0301"}) {
    EXPECT_EQ(ToNfc(text), std::nullopt) << text;
  }
}

TEST(Normalize, KeepsBytesThatAreNotUtf8) {
  EXPECT_EQ(ToNfc("e\xFF\u0301"), std::nullopt) << "nothing is composed across";
  EXPECT_EQ(ToNfc("\xFF"
                  "e\u0301\xE6\x97"),
            "\xFF\u00E9\xE6\x97");
  EXPECT_EQ(ToNfc(std::string_view("\0e\u0301\0", 5)), std::string_view("\0\u00E9\0", 4));
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const std::string text = seed % 2 ? RandomNearUtf8(seed, seed) : RandomBytes(seed, seed);
    const std::string once = ToNfc(text).value_or(text);
    EXPECT_EQ(ToNfc(once), std::nullopt);
  }
}

TEST(Normalize, MarksAreSpaces) {
  EXPECT_EQ(MarksToSpaces(""), "");
  EXPECT_EQ(MarksToSpaces("\u2581a\u2581\u2581b \u2580"), " a  b \u2580");
}

}  // namespace
}  // namespace clearhead
