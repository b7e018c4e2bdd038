// SPDX-License-Identifier: MIT
#include "figures/terminal_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace clearhead {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two heads over three tokens; the future holds numbers that must not be seen.
const std::vector<float> kMaps = {1,     0.9f, 0.9f, 0.3f, 0.7f, 0.9f, 0.04f, 0.05f, 0.41f,
                                  0.69f, 1,    1,    0,    1,    1,    0.2f,  -1,    2};
const std::vector<std::string> kLabels = {"L0H0", "L11H3"};
const std::vector<std::string> kTokens = {"The", " cat", "\n"};

TEST(TerminalMaps, SideBySide) {
  EXPECT_EQ(TerminalMaps(kMaps, kLabels, kTokens),
            "     L0H0    L11H3\n"
            "The  ██      ▓▓\n"
            "·cat ▒▒██    · ██\n"
            "\\n   · ░░▓▓  ▒▒· ██\n"
            "\n"
            "░░ from 0.05  ▒▒ from 0.2  ▓▓ from 0.4  ██ from 0.7\n");
}

TEST(TerminalMaps, Ascii) {
  EXPECT_EQ(TerminalMaps(kMaps, kLabels, kTokens, {.ascii = true}),
            "     L0H0    L11H3\n"
            "The  @@      ##\n"
            "_cat ++@@    . @@\n"
            "\\n   . ::##  ++. @@\n"
            "\n"
            ":: from 0.05  ++ from 0.2  ## from 0.4  @@ from 0.7\n");
}

TEST(TerminalMaps, BreaksLinesAtTheWidth) {
  // Two maps need 5 + 6 + 2 + 6 = 19 columns.
  EXPECT_EQ(TerminalMaps(kMaps, kLabels, kTokens, {.width = 19}),
            TerminalMaps(kMaps, kLabels, kTokens));
  EXPECT_THAT(TerminalMaps(kMaps, kLabels, kTokens, {.width = 18}),
              HasSubstr("\\n   · ░░▓▓\n\n     L11H3\nThe  ▓▓\n"));
  // No room for the tokens.
  EXPECT_THAT(TerminalMaps(kMaps, kLabels, kTokens, {.width = 10}),
              HasSubstr("L0H0\n██\n▒▒██\n· ░░▓▓\n\nL11H3\n▓▓\n"));
}

TEST(TerminalMaps, PoolsLongSequencesByTheLargest) {
  // 65 positions, 32 cells at most: 3 x 3 in a cell, 22 cells.
  constexpr std::size_t kLength = 65;
  std::vector<float> map(kLength * kLength, 0.0f);
  map[64 * kLength + 1] = 0.8f;  // a single open edge in the last, incomplete row
  map[3 * kLength + 4] = 1.0f;   // in the future, inside a cell on the diagonal
  const std::string text =
      TerminalMaps(map, std::vector<std::string>{"L0H0"}, std::vector<std::string>(kLength, "x"));
  std::istringstream lines(text);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 1 + 22 + 1 + 1u);
  EXPECT_EQ(rows[1], "·");
  EXPECT_EQ(rows[2], "· ·");
  EXPECT_EQ(rows[22].substr(0, std::string("██·").size()), "██·");
  EXPECT_THAT(rows[24], HasSubstr("the largest of 3 x 3"));
}

TEST(TerminalMaps, ShowsNaN) {
  EXPECT_THAT(TerminalMaps(std::vector<float>{std::nanf("")}, std::vector<std::string>{"a"},
                           std::vector<std::string>{"b"}),
              HasSubstr("  a\nb ??\n"));
}

TEST(TerminalMaps, TokensCannotDriveTheTerminal) {
  const std::vector<std::string> tokens = {"\x1b[31m",          "\xc3",   "日本",
                                           "a long long token", "\u202e", ""};
  const std::vector<float> map(36, 0.0f);
  EXPECT_EQ(TerminalMaps(map, std::vector<std::string>{"\x1b]0;"}, tokens),
            "             \ufffd]0;\n"
            "\ufffd[31m        ·\n"
            "\ufffd            · ·\n"
            "日本         · · ·\n"
            "a·long·long… · · · ·\n"
            "\ufffd            · · · · ·\n"
            "             · · · · · ·\n"
            "\n"
            "░░ from 0.05  ▒▒ from 0.2  ▓▓ from 0.4  ██ from 0.7\n");
  const std::string ascii =
      TerminalMaps(map, std::vector<std::string>{"é"}, tokens, {.ascii = true});
  for (const char c : ascii) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~'));
}

TEST(TerminalMaps, NothingAndTinyWidths) {
  EXPECT_EQ(TerminalMaps({}, {}, {}), "");
  EXPECT_EQ(TerminalMaps({}, kLabels, {}), "");
  EXPECT_THAT(TerminalMaps(kMaps, kLabels, kTokens, {.width = 0}), HasSubstr("3 x 3"));
  EXPECT_THROW(TerminalMaps(kMaps, kLabels, {}), std::logic_error);
}

}  // namespace
}  // namespace clearhead
