// SPDX-License-Identifier: MIT
#include "core/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace clearhead {
namespace {

using testing::HasSubstr;
using testing::Not;

// A terminal that remembers what was written, with a clock set by hand.
struct FakeTerminal {
  std::vector<std::string> writes;
  double now = 1000;

  ProgressOutput Output(bool is_terminal = true, int columns = 80) {
    return {[this](std::string_view text) { writes.emplace_back(text); }, [this] { return now; },
            is_terminal, /*lines=*/false, columns};
  }
};

TEST(Progress, IsSilentWithoutATerminal) {
  FakeTerminal terminal;
  {
    Progress progress("train", 10, "tok", terminal.Output(/*is_terminal=*/false));
    for (int i = 0; i <= 10; ++i, terminal.now += 1) progress.Update(i, "loss 1.0");
    progress.Finish();
  }
  EXPECT_TRUE(terminal.writes.empty());
}

TEST(Progress, ShowsLabelCountsRateRemainingAndExtra) {
  FakeTerminal terminal;
  Progress progress("train", 100'000, "tok", terminal.Output());
  terminal.now += 10;
  progress.Update(25'000, "loss 3.21");
  ASSERT_EQ(terminal.writes.size(), 1u);
  EXPECT_EQ(terminal.writes[0], "\rtrain  25.0k/100k  25%  2500 tok/s  0:30 left  loss 3.21\x1b[K");
}

TEST(Progress, DrawsAtMostTenTimesASecond) {
  FakeTerminal terminal;
  Progress progress("read", 10'000, "MB", terminal.Output());
  for (int i = 0; i < 10'000; ++i, terminal.now += 0.001) progress.Update(i);
  EXPECT_LE(terminal.writes.size(), 100u);
  EXPECT_GE(terminal.writes.size(), 90u);
}

TEST(Progress, FinishDrawsTheLastStateOnceAndEndsTheLine) {
  FakeTerminal terminal;
  {
    Progress progress("eval", 7, "batches", terminal.Output());
    progress.Update(7, "done");  // too early to be drawn
    progress.Finish();
    progress.Finish();
    progress.Update(8);
  }
  ASSERT_EQ(terminal.writes.size(), 2u);
  EXPECT_THAT(terminal.writes[0], HasSubstr("7/7  100%  done"));
  EXPECT_EQ(terminal.writes[1], "\n");
}

TEST(Progress, DestructionErasesAnUnfinishedLine) {
  FakeTerminal terminal;
  {
    Progress progress("eval", 7, "batches", terminal.Output());
    terminal.now += 1;
    progress.Update(3);
  }
  ASSERT_EQ(terminal.writes.size(), 2u);
  EXPECT_EQ(terminal.writes[1], "\r\x1b[K");
  { Progress never_drawn("eval", 7, "batches", terminal.Output()); }
  EXPECT_EQ(terminal.writes.size(), 2u);
}

TEST(Progress, UnknownTotalAndNothingDoneHaveNoPercentageOrRemainingTime) {
  FakeTerminal terminal;
  Progress unknown("read", 0, "lines", terminal.Output());
  terminal.now += 2;
  unknown.Update(50);
  EXPECT_EQ(terminal.writes.back(), "\rread  50  25 lines/s\x1b[K");
  Progress nothing("read", 5, "lines", terminal.Output());
  terminal.now += 2;
  nothing.Update(0);
  EXPECT_EQ(terminal.writes.back(), "\rread  0/5  0%\x1b[K");
}

TEST(Progress, PercentageNeverSaysMoreThanIsDone) {
  FakeTerminal terminal;
  Progress progress("p", 1000, "x", terminal.Output());
  terminal.now += 1;
  progress.Update(999);
  EXPECT_THAT(terminal.writes.back(), HasSubstr(" 99%"));
  terminal.now += 1;
  progress.Update(2000);  // more than promised
  EXPECT_THAT(terminal.writes.back(), HasSubstr(" 100%"));
  EXPECT_THAT(terminal.writes.back(), Not(HasSubstr("left")));
}

TEST(Progress, LinesAreCutToTheTerminalOnACharacterBoundary) {
  FakeTerminal terminal;
  Progress progress("é日", 0, "x", terminal.Output(true, /*columns=*/3));
  terminal.now += 1;
  progress.Update(5);
  EXPECT_EQ(terminal.writes.back(), "\ré日\x1b[K");
  Progress narrow("é日", 0, "x", terminal.Output(true, /*columns=*/2));
  terminal.now += 1;
  narrow.Update(5);
  EXPECT_EQ(terminal.writes.back(), "\ré\x1b[K");
}

TEST(Progress, ClearErasesOnceAndTheNextUpdateDrawsAgain) {
  FakeTerminal terminal;
  {
    Progress progress("p", 10, "x", terminal.Output());
    progress.Clear();  // nothing is drawn yet
    EXPECT_TRUE(terminal.writes.empty());
    terminal.now += 1;
    progress.Update(5);
    progress.Clear();
    progress.Clear();
    EXPECT_EQ(terminal.writes.size(), 2u);
    EXPECT_EQ(terminal.writes.back(), "\r\x1b[K");
    terminal.now += 1;
    progress.Update(6);
    EXPECT_THAT(terminal.writes.back(), HasSubstr("6/10  60%  3 x/s"));
    progress.Finish();
    progress.Clear();
    EXPECT_EQ(terminal.writes.back(), "\n");
  }
  EXPECT_EQ(terminal.writes.back(), "\n");
}

TEST(FormatDuration, Texts) {
  EXPECT_EQ(FormatDuration(0), "0:00");
  EXPECT_EQ(FormatDuration(-5), "0:00");
  EXPECT_EQ(FormatDuration(7.4), "0:07");
  EXPECT_EQ(FormatDuration(59.6), "1:00");
  EXPECT_EQ(FormatDuration(754), "12:34");
  EXPECT_EQ(FormatDuration(3599.7), "1:00:00");
  EXPECT_EQ(FormatDuration(3723), "1:02:03");
  EXPECT_EQ(FormatDuration(360'000), "100:00:00");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(FormatCount, Texts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(7), "7");
  EXPECT_EQ(FormatCount(0.25), "0.25");
  EXPECT_EQ(FormatCount(9.996), "10.0");
  EXPECT_EQ(FormatCount(99.96), "100");
  EXPECT_EQ(FormatCount(9999), "9999");
  EXPECT_EQ(FormatCount(10'000), "10.0k");
  EXPECT_EQ(FormatCount(12'345), "12.3k");
  EXPECT_EQ(FormatCount(999'499), "999k");
  EXPECT_EQ(FormatCount(999'500), "1.00M");
  EXPECT_EQ(FormatCount(4'560'000), "4.56M");
  EXPECT_EQ(FormatCount(7.89e9), "7.89G");
  EXPECT_EQ(FormatCount(-12'345), "-12.3k");
  EXPECT_EQ(FormatCount(999.7), "1.00k");
}

}  // namespace
}  // namespace clearhead
