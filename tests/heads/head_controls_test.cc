// SPDX-License-Identifier: MIT
// A name's score on its own head, on heads of every other kind, and text in another order.
#include "heads/head_controls.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "heads/synthetic_heads.h"

namespace clearhead {
namespace {

constexpr HeadKind kKinds[] = {
    HeadKind::kFirstToken, HeadKind::kSelf,           HeadKind::kPreviousToken, HeadKind::kOffset,
    HeadKind::kInduction,  HeadKind::kDuplicateToken, HeadKind::kStripes,       HeadKind::kDiffuse,
    HeadKind::kFragments,  HeadKind::kHybrid,         HeadKind::kNearEmpty};

HeadResult Result(const SyntheticHead& head) {
  HeadResult result{.statistics = head.Statistics()};
  result.name = NameHead(result.statistics);
  return result;
}

TEST(HeadControls, AHeadsOwnScoreIsItsNames) {
  SyntheticHeads heads(7);
  for (const HeadKind kind : kKinds) {
    const HeadResult head = Result(heads.Make(kind, 64, Spoil::kNoise));
    EXPECT_NEAR(ScoreOfName(head, head), head.name.score, 1e-12) << head.name.name;
  }
}

// Few keys at changing places, more than a sharp head has: no pattern, low peaks.
TEST(HeadControls, SpreadWithoutAPatternKeepsItsScore) {
  constexpr std::int64_t T = 64;
  SyntheticHead head{.length = T, .map = std::vector<float>(T * T), .ids = {}};
  for (std::int64_t i = 0; i < T; ++i) {
    for (std::int64_t n = 0; n < 6; ++n)
      head.map[i * T + (i * 37 + n * n * 11) % (i + 1)] += 1.0f / 6;
    head.ids.push_back(static_cast<std::int32_t>(i));
  }
  const HeadResult result = Result(head);
  ASSERT_EQ(result.name.kind, HeadKind::kDiffuse) << result.name.name;
  EXPECT_NEAR(ScoreOfName(result, result), result.name.score, 1e-12);
}

TEST(HeadControls, APatternIsNotFoundWhereItIsNot) {
  SyntheticHeads heads(8);
  const HeadResult spread = Result(heads.Make(HeadKind::kDiffuse, 128, Spoil::kNothing));
  for (const HeadKind kind : {HeadKind::kFirstToken, HeadKind::kSelf, HeadKind::kPreviousToken,
                              HeadKind::kOffset, HeadKind::kInduction, HeadKind::kDuplicateToken}) {
    const HeadResult head = Result(heads.Make(kind, 128, Spoil::kNothing));
    EXPECT_GT(head.name.score, 0.8) << head.name.name;
    EXPECT_LT(ScoreOfName(head, spread), 0.3) << head.name.name;
  }
}

TEST(HeadControls, MeanAndMostOverTheRandomModel) {
  SyntheticHeads heads(9);
  ModelReport report, shuffled, random;
  report.heads = {Result(heads.Make(HeadKind::kPreviousToken, 64, Spoil::kNothing))};
  shuffled.heads = report.heads;
  random.heads = {Result(heads.Make(HeadKind::kDiffuse, 64, Spoil::kNothing)),
                  Result(heads.Make(HeadKind::kPreviousToken, 64, Spoil::kNothing))};
  const std::vector<HeadControl> controls = ControlNames(report, shuffled, random);
  ASSERT_EQ(controls.size(), 1U);
  const double low = ScoreOfName(report.heads[0], random.heads[0]);
  const double high = ScoreOfName(report.heads[0], random.heads[1]);
  EXPECT_EQ(controls[0].shuffled, report.heads[0].name.score);
  EXPECT_DOUBLE_EQ(controls[0].random_mean, (low + high) / 2.0);
  EXPECT_EQ(controls[0].random_most, high);
  EXPECT_LT(low, high);
}

TEST(HeadControls, ShuffledTextHasTheSameTokensAndFirstOne) {
  std::vector<AttentionSequence> sequences(3);
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    for (std::int32_t t = 0; t < 50; ++t) sequences[s].ids.push_back(t);
    sequences[s].length = 50;
  }
  sequences.push_back({.length = 1, .ids = {4}});
  const std::vector<std::vector<std::int32_t>> shuffled = ShuffledSequences(sequences, 5);
  ASSERT_EQ(shuffled.size(), sequences.size());
  EXPECT_EQ(shuffled[3], sequences[3].ids);
  for (std::size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(shuffled[s][0], 0);
    EXPECT_NE(shuffled[s], sequences[s].ids);
    EXPECT_TRUE(
        std::is_permutation(shuffled[s].begin(), shuffled[s].end(), sequences[s].ids.begin()));
  }
  EXPECT_NE(shuffled[0], shuffled[1]);
  EXPECT_EQ(shuffled, ShuffledSequences(sequences, 5));
  EXPECT_NE(shuffled, ShuffledSequences(sequences, 6));
}

}  // namespace
}  // namespace clearhead
