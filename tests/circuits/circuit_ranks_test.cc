// SPDX-License-Identifier: MIT
// Ranks that share prompts out find the circuit of one, bit for bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "circuits/circuit_json.h"
#include "circuits/circuit_testing.h"
#include "circuits/toy_models.h"
#include "support/thread_ranks.h"

namespace clearhead {
namespace {

using ::testing::Each;

// Every figure of the report.
std::string TextOf(const CircuitReport& report) {
  std::string text = ToText(CircuitJson(report)) + ToText(GraphJson(report));
  for (const double score : report.attribution.edges) text += fmt::format("{} ", score);
  if (report.direct) text += fmt::format("bias {}", report.direct->bias);
  return text;
}

struct Search {
  Ablation ablation;
  HeadImportance importance;
};

class CircuitRanks : public testing::TestWithParam<AttentionKind> {};

TEST_P(CircuitRanks, FindTheCircuitOfOne) {
  const Model model = InductionModel(GetParam());
  const TaskSet set = InductionTask(20, 3);
  for (const Search& search : {Search{Ablation::kResample, HeadImportance::kBoth},
                               Search{Ablation::kMean, HeadImportance::kNoise}}) {
    FindOptions options{.heads = true,
                        .edges = true,
                        .ablation = search.ablation,
                        .importance = search.importance,
                        .steps = 2};
    const std::string expected = TextOf(FindCircuit(model, set, options));
    for (const int count : {2, 3}) {
      const auto messages = RunRanks(count, [&](Communicator& ranks) {
        FindOptions shared = options;
        shared.ranks = &ranks;
        EXPECT_EQ(TextOf(FindCircuit(model, set, shared)), expected) << count;
      });
      EXPECT_THAT(messages, Each("")) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Attention, CircuitRanks,
                         testing::Values(AttentionKind::kSoftmax, AttentionKind::kGated));

TEST(TaskBatches, GiveEveryRankAsMuch) {
  const ModelConfig config = OddConfig();
  const TaskSet set = RandomTask(config, 61, 4);
  const auto order_of = [](const std::vector<TaskBatch>& batches) {
    std::vector<std::size_t> order;
    for (const TaskBatch& batch : batches) {
      order.insert(order.end(), batch.items.begin(), batch.items.end());
    }
    return order;
  };
  const auto one = order_of(MakeTaskBatches(set, config));
  std::set<std::int64_t> lengths;
  for (const TaskItem& item : set.items)
    lengths.insert(static_cast<std::int64_t>(item.clean.size()));
  for (const std::int64_t ranks : {2, 3, 5}) {
    const std::vector<TaskBatch> batches = MakeTaskBatches(set, config, kTaskBatchRows, ranks);
    EXPECT_EQ(order_of(batches), one);
    std::vector<std::int64_t> prompts(static_cast<std::size_t>(ranks));
    for (std::size_t n = 0; n < batches.size(); ++n) {
      prompts[n % static_cast<std::size_t>(ranks)] += batches[n].size();
    }
    const auto [least, most] = std::minmax_element(prompts.begin(), prompts.end());
    EXPECT_LE(*most - *least, static_cast<std::int64_t>(lengths.size()));
  }
}

}  // namespace
}  // namespace clearhead
