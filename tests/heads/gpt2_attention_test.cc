// SPDX-License-Identifier: MIT
// Real attention of GPT-2 124M, where it is at hand: CLEARHEAD_SHARED, or ../shared beside the
// sources.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "heads/head_report.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

fs::path Shared() {
  if (const char* named = std::getenv("CLEARHEAD_SHARED"); named != nullptr) return named;
  return fs::path(CLEARHEAD_TEST_DATA) / "../../../shared";
}

class Gpt2Attention : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    path_ = Shared() / "gpt2-attention" / ("ex" + std::to_string(GetParam()) + ".safetensors");
    if (!fs::exists(path_)) GTEST_SKIP() << "no real GPT-2 attention; set CLEARHEAD_SHARED";
  }
  fs::path path_;
};

TEST_P(Gpt2Attention, TheKnownHeadsAreNamed) {
  const ModelReport report = AnalyseHeads(AttentionOfFile(path_, "GPT2"));
  ASSERT_EQ(report.heads.size(), 144u);
  const auto head = [&](std::int64_t layer, std::int64_t number) -> const HeadResult& {
    return report.heads[static_cast<std::size_t>(layer * 12 + number)];
  };
  EXPECT_EQ(head(4, 11).name.kind, HeadKind::kPreviousToken) << head(4, 11).name.sentence;
  EXPECT_GT(head(4, 11).name.margin, 0.5);
  EXPECT_EQ(head(5, 1).name.kind, HeadKind::kFirstToken) << head(5, 1).name.sentence;
  EXPECT_EQ(head(0, 1).name.kind, HeadKind::kSelf) << head(0, 1).name.sentence;
  EXPECT_EQ(head(0, 5).name.kind, HeadKind::kSelf) << head(0, 5).name.sentence;
  // docs/heads.md explains why so many heads rest on the first token.
  EXPECT_GT(report.summary.sink_heads, 0.5);
  EXPECT_LT(report.summary.sink_heads, 0.9);
  EXPECT_EQ(report.summary.edge_fraction, 1.0);  // a dense model
}

INSTANTIATE_TEST_SUITE_P(Prompts, Gpt2Attention, testing::Range(0, 3));

}  // namespace
}  // namespace clearhead
