// SPDX-License-Identifier: MIT
// Ranks that share sequences out make the report of one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/random.h"
#include "heads/head_report.h"
#include "heads/results_json.h"
#include "support/thread_ranks.h"

namespace clearhead {
namespace {

// Sequences of several lengths with random attention, some rows of it empty; of every third the
// tokens are known if `tokens` says so, else of all.
AttentionSource RandomSource(int sequences, bool all_known) {
  AttentionSource source{.label = "random", .layers = 2, .heads = 3};
  for (int s = 0; s < sequences; ++s) {
    AttentionSequence& sequence = source.sequences.emplace_back();
    sequence.length = 5 + 7 * s % 23;
    RandomStream random(static_cast<std::uint64_t>(s));
    for (std::int64_t t = 0; t < sequence.length && (all_known || s % 3 == 0); ++t) {
      sequence.ids.push_back(static_cast<std::int32_t>(random.Uniform() * 6.0));
    }
  }
  source.visit = [lengths = source.sequences](std::size_t s, const LayerVisitor& visitor) {
    const std::int64_t T = lengths[s].length;
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      RandomStream random(100 + s * 2 + static_cast<std::uint64_t>(layer));
      std::vector<float> maps(static_cast<std::size_t>(3 * T * T));
      for (std::int64_t row = 0; row < 3 * T; ++row) {
        const std::int64_t i = row % T;
        if (random.Uniform() < 0.1) continue;
        double sum = 0.0;
        std::vector<double> weights;
        for (std::int64_t j = 0; j <= i; ++j) {
          weights.push_back(std::exp(3.0 * random.Normal()));
          sum += weights.back();
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          maps[static_cast<std::size_t>(row * T + j)] =
              static_cast<float>(weights[static_cast<std::size_t>(j)] / sum);
        }
      }
      visitor(layer, maps.data());
    }
  };
  return source;
}

std::string TextOf(const ModelReport& report) {
  std::vector<const HeadResult*> all;
  std::string text;
  for (const HeadResult& head : report.heads) {
    all.push_back(&head);
    for (const HeadStatistics::Block& block : head.statistics.blocks) {
      text += fmt::format("{} {} {} {}\n", block.self, block.first, block.mean_peak,
                          block.open_edges_per_query);
    }
  }
  return ToText(ToJson(report, all)) + text;
}

TEST(HeadRanks, MakeTheReportOfOne) {
  for (const bool all_known : {true, false}) {
    // More sequences than blocks, fewer than ranks, one.
    for (const int sequences : {70, 2, 1}) {
      const AttentionSource source = RandomSource(sequences, all_known);
      const std::string expected = TextOf(AnalyseHeads(source));
      for (const int count : {2, 3}) {
        std::atomic<int> visits = 0;
        const auto messages = RunRanks(count, [&](Communicator& ranks) {
          const auto count_visit = [&](std::size_t, std::size_t) { ++visits; };
          EXPECT_EQ(TextOf(AnalyseHeads(source, count_visit, &ranks)), expected) << sequences;
        });
        EXPECT_THAT(messages, testing::Each(""));
        EXPECT_EQ(visits, sequences);
      }
    }
  }
}

// Sums of sums are those of one accumulator that saw all sequences, but for their last digits.
TEST(HeadRanks, SumsAreThoseOfOneAccumulator) {
  const AttentionSource source = RandomSource(70, true);
  const ModelReport report = AnalyseHeads(source);
  HeadAccumulator whole;
  for (std::size_t s = 0; s < source.sequences.size(); ++s) {
    source.visit(s, [&](std::int64_t layer, const float* weights) {
      const std::int64_t T = source.sequences[s].length;
      if (layer == 1) whole.Add(weights + 2 * T * T, T, EarlierCopies(source.sequences[s].ids));
    });
  }
  const HeadStatistics expected = whole.Finish({1, 2}), &found = report.heads[5].statistics;
  EXPECT_EQ(found.sequences, expected.sequences);
  EXPECT_EQ(found.peak, expected.peak);
  EXPECT_EQ(found.open_edges_per_query, expected.open_edges_per_query);
  EXPECT_EQ(found.tokens_known, expected.tokens_known);
  EXPECT_NEAR(found.entropy, expected.entropy, 1e-12);
  EXPECT_NEAR(found.induction.closeness, expected.induction.closeness, 1e-12);
  EXPECT_NEAR(found.evidence.fragments.on, expected.evidence.fragments.on, 1e-10);
  EXPECT_EQ(found.evidence.offset_distance, expected.evidence.offset_distance);
  ASSERT_EQ(found.blocks.size(), expected.blocks.size());
  for (std::size_t b = 0; b < found.blocks.size(); ++b) {
    EXPECT_NEAR(found.blocks[b].mean_peak, expected.blocks[b].mean_peak, 1e-12);
  }
}

}  // namespace
}  // namespace clearhead
