// SPDX-License-Identifier: MIT
#include "heads/head_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "model/model_testing.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<HeadId> Parse(const std::string& text) {
  return ParseHeadList(text, 12, 12, [] { return std::vector<HeadId>{{7, 1}, {0, 3}, {2, 2}}; });
}

TEST(HeadId, ReadsThreeSpellings) {
  EXPECT_EQ(ParseHead("L5H1"), (HeadId{5, 1}));
  EXPECT_EQ(ParseHead("l11h10"), (HeadId{11, 10}));
  EXPECT_EQ(ParseHead("5.1"), (HeadId{5, 1}));
  EXPECT_EQ(ParseHead("a5.h1"), (HeadId{5, 1}));
  EXPECT_EQ(ToText(HeadId{11, 0}), "L11H0");
  for (const char* bad : {"", "L5", "5", "5.", ".1", "L5H", "LH", "a5.1", "L5H1 ", "L-1H2", "5.1.2",
                          "L99999999999999999999H1", "H1L5", "5,1", "a5h1", " 5.1"}) {
    EXPECT_FALSE(ParseHead(bad)) << bad;
  }
}

TEST(HeadList, KeepsTheGivenOrder) {
  EXPECT_THAT(Parse("L9H9,0.1,a5.h1"), ElementsAre(HeadId{9, 9}, HeadId{0, 1}, HeadId{5, 1}));
  EXPECT_EQ(Parse("all").size(), 144u);
  EXPECT_EQ(Parse("all")[12], (HeadId{1, 0}));
  EXPECT_THAT(Parse("top:2"), ElementsAre(HeadId{7, 1}, HeadId{0, 3}));
}

TEST(HeadList, ReadsCircuits) {
  const TemporaryFolder folder;
  const auto circuit = [&](const std::string& json) {
    WriteFile(folder / "c.json", json);
    return Parse("circuit:" + (folder / "c.json").string());
  };
  EXPECT_THAT(
      circuit(R"({"task": "x", "heads": [{"head": "L9H9", "effect": 1}, {"head": "L0H1"}]})"),
      ElementsAre(HeadId{9, 9}, HeadId{0, 1}));
  EXPECT_THAT(circuit(R"({"heads": [{"head": "L9H9"}, {"head": "L0H1"}], "at_90": 1})"),
              ElementsAre(HeadId{9, 9}));
  for (const char* bad :
       {"[]", "{}", R"({"heads": []})", R"({"heads": [1]})", R"({"heads": [{"name": "L0H1"}]})",
        R"({"heads": [{"head": "x"}]})", R"({"heads": [{"head": "L0H1"}], "at_90": 2})",
        R"({"heads": [{"head": "L0H1"}], "at_90": 0})", R"({"heads": [{"head": "L0H12"}]})"}) {
    EXPECT_THAT(ErrorOf([&] { circuit(bad); }), HasSubstr("c.json")) << bad;
  }
}

TEST(HeadList, RefusesWhatIsNotThere) {
  EXPECT_THAT(ErrorOf([] { Parse("L0H1,L12H0"); }), HasSubstr("no head L12H0"));
  EXPECT_THAT(ErrorOf([] { Parse("L0H1,L12H0"); }), HasSubstr("L0H0 to L11H11"));
  EXPECT_THAT(ErrorOf([] { Parse("L0H1,foo"); }), HasSubstr("'foo' is not a head"));
  EXPECT_THAT(ErrorOf([] { Parse("L0H1,0.1"); }), HasSubstr("L0H1 is named twice"));
  EXPECT_THAT(ErrorOf([] { Parse(""); }), HasSubstr("'' is not a head"));
  EXPECT_THAT(ErrorOf([] { Parse("L0H1,"); }), HasSubstr("'' is not a head"));
  EXPECT_THAT(ErrorOf([] { Parse("top:4"); }), HasSubstr("only 3"));
  for (const char* bad : {"top:", "top:0", "top:-1", "top:1x"}) {
    EXPECT_THAT(ErrorOf([&] { Parse(bad); }), HasSubstr("not a number of heads")) << bad;
  }
  EXPECT_THAT(ErrorOf([] { Parse("circuit:/nowhere/c.json"); }), HasSubstr("/nowhere/c.json"));
}

}  // namespace
}  // namespace clearhead
