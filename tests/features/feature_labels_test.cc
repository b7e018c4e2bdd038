// SPDX-License-Identifier: MIT
// Labels of features whose rule is known: they fire on a token, on a token after another, by
// chance, hardly ever, never.
#include "features/feature_labels.h"

#include <gtest/gtest.h>

#include <set>

#include "features/feature_testing.h"
#include "features/index_slice.h"

namespace clearhead {
namespace {

constexpr std::int64_t kWindow = 20, kWindows = 200;

class LabelTest : public testing::Test {
 protected:
  // Whether feature f fires at a place of the text.
  using Rule = std::function<bool(std::int64_t position)>;

  std::int32_t TokenAt(std::int64_t position) const {
    return ids_[static_cast<std::size_t>(position)];
  }

  // Half of the windows propose, the others judge, as in an index of groups of one window.
  std::vector<FeatureLabel> LabelsOf(const std::vector<Rule>& rules,
                                     const std::vector<std::int32_t>& exciting) {
    const auto F = static_cast<std::int64_t>(rules.size());
    IndexSlice slice;
    slice.tallies.resize(rules.size());
    slice.tokens.resize(rules.size());
    for (FeatureTokens& tokens : slice.tokens) {
      for (std::size_t k = 0; k < tokens.exciting.size(); ++k) {
        tokens.exciting[k].token = exciting[k % exciting.size()];
      }
    }
    const SliceLayer part{.layer = 0, .first = 0, .count = F, .place = 0};
    std::vector<std::uint32_t> places[2];
    for (int half = 0; half < 2; ++half) {
      for (std::int64_t w = half; w < kWindows; w += 2) {
        SparseRows active;
        for (std::int64_t t = 0; t < kWindow; ++t) {
          const std::int64_t position = w * kWindow + t;
          if (t > 0) places[half].push_back(static_cast<std::uint32_t>(position));
          for (std::int64_t f = 0; f < F; ++f) {
            if (!rules[static_cast<std::size_t>(f)](position)) continue;
            active.column.push_back(static_cast<std::int32_t>(f));
            active.value.push_back(1.0f + static_cast<float>(t));
          }
          active.begin.push_back(active.size());
        }
        AddGroup(part, active, {w, w * kWindow, 1, kWindow}, text_, kWindow * kWindows, &slice);
      }
      if (half == 0) Propose(text_, SuffixCounts(text_, places[0]), &slice);
    }
    const SuffixCounts judging(text_, places[1]);
    std::vector<FeatureLabel> labels;
    for (std::size_t f = 0; f < rules.size(); ++f) {
      labels.push_back(ChooseLabel(slice.tallies[f], slice.labels[f], text_, judging));
    }
    return labels;
  }

  static std::vector<std::int32_t> TokensOf(const LabelPattern& label) {
    return {label.pattern.tokens.begin(), label.pattern.tokens.begin() + label.pattern.length};
  }

  std::vector<std::int32_t> ids_ = UnevenText(30, kWindow* kWindows, 8);
  WindowedText text_{ids_, kWindow};
};

TEST_F(LabelTest, SayWhatMakesTheFeatureFire) {
  const auto after = [&](std::int64_t p, std::int32_t before, std::int32_t token) {
    return p % kWindow > 0 && TokenAt(p) == token && TokenAt(p - 1) == before;
  };
  // Token 10 follows 1 half of the time (UnevenText), and others too.
  const std::vector<FeatureLabel> labels = LabelsOf(
      {
          [&](std::int64_t p) { return TokenAt(p) == 5; },
          [&](std::int64_t p) { return after(p, 1, 10); },
          [&](std::int64_t p) { return TokenAt(p) == 2 || TokenAt(p) == 4; },
          [&](std::int64_t p) {
            return TokenAt(p) == 3 && Mix64(static_cast<std::uint64_t>(p)) % 3 == 0;
          },
          [&](std::int64_t p) { return p == 3 * kWindow + 7; },  // in the judging half alone
          [&](std::int64_t p) { return p == 4 * kWindow + 7; },  // in the proposing half alone
          [](std::int64_t) { return false; },
      },
      {5, 29});
  ASSERT_EQ(labels[0].kind, LabelKind::kFires);
  EXPECT_EQ(TokensOf(labels[0].patterns[0]), (std::vector<std::int32_t>{5}));
  EXPECT_TRUE(labels[0].patterns[0].from_embedding);
  EXPECT_EQ(labels[0].patterns.size(), 1u);  // what ends in it says nothing more
  EXPECT_EQ(labels[0].fired(), labels[0].seen());
  EXPECT_GT(labels[0].seen(), 20);

  ASSERT_EQ(labels[1].kind, LabelKind::kFires);
  EXPECT_EQ(TokensOf(labels[1].patterns[0]), (std::vector<std::int32_t>{1, 10}));
  EXPECT_FALSE(labels[1].patterns[0].from_embedding);
  EXPECT_EQ(labels[1].fired(), labels[1].seen());

  ASSERT_EQ(labels[2].kind, LabelKind::kFires);
  std::set<std::int32_t> tokens;
  for (const LabelPattern& pattern : labels[2].patterns) tokens.insert(pattern.pattern.FromEnd(0));
  EXPECT_EQ(tokens, (std::set<std::int32_t>{2, 4}));

  EXPECT_EQ(labels[3].kind, LabelKind::kSometimes);
  EXPECT_EQ(labels[3].patterns[0].pattern.FromEnd(0), 3);
  EXPECT_GT(labels[3].fired(), 0);
  EXPECT_LT(labels[3].fired(), labels[3].seen());

  EXPECT_EQ(labels[4].kind, LabelKind::kMostly);
  EXPECT_EQ(TokensOf(labels[4].patterns[0]), (std::vector<std::int32_t>{TokenAt(3 * kWindow + 7)}));
  EXPECT_EQ(labels[4].fired(), 1);
  EXPECT_EQ(labels[5].kind, LabelKind::kMostly);
  EXPECT_EQ(TokensOf(labels[5].patterns[0]), (std::vector<std::int32_t>{TokenAt(4 * kWindow + 7)}));
  EXPECT_EQ(labels[5].fired(), 0);
  EXPECT_EQ(labels[6].kind, LabelKind::kNone);
  EXPECT_TRUE(labels[6].patterns.empty());
}

TEST(SuffixCountsTest, CountAsALoopDoes) {
  const std::vector<std::int32_t> ids = UnevenText(6, 500, 4);
  const WindowedText text{ids, 13};
  std::vector<std::uint32_t> places;
  for (std::uint32_t p = 0; p < ids.size(); ++p) {
    if (p % 13 != 0 && p % 7 < 5) places.push_back(p);
  }
  const SuffixCounts counts(text, places);
  for (std::int64_t at = 0; at < 60; ++at) {
    for (int length = 1; length <= kPatternTokens; ++length) {
      const TokenPattern pattern = PatternAt(text, at, length);
      std::int64_t expected = 0;
      for (const std::uint32_t p : places) {
        bool same = static_cast<int>(p % 13) + 1 >= pattern.length;
        for (int d = 0; d < pattern.length && same; ++d) {
          same = ids[p - static_cast<std::uint32_t>(d)] == pattern.FromEnd(d);
        }
        EXPECT_EQ(EndsAt(pattern, text, p), same);
        expected += same ? 1 : 0;
      }
      EXPECT_EQ(counts.Count(pattern), expected);
      EXPECT_TRUE(IsSuffix(PatternAt(text, at, 1), pattern));
    }
  }
  TokenPattern absent{.length = 1};
  absent.tokens[0] = 99;
  EXPECT_EQ(counts.Count(absent), 0);
}

}  // namespace
}  // namespace clearhead
