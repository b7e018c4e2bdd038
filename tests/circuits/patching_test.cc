// SPDX-License-Identifier: MIT
#include "circuits/patching.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "circuits/circuit_testing.h"
#include "circuits/task_score.h"
#include "core/random.h"
#include "core/threads.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

// Metrics here are of size 1; the runs differ in the shapes of their matrix products, so in the
// last bits of fp32.
constexpr double kTolerance = 2e-5;

struct Case {
  AttentionKind attention;
  Direction direction;
  Ablation ablation;
  TaskMetric metric = TaskMetric::kLogitDifference;
};

class Patching : public testing::TestWithParam<Case> {};

TEST_P(Patching, EqualsRerunningTheWholeModel) {
  const auto [attention, direction, ablation, metric] = GetParam();
  const Model model = LivelyModel(DeepConfig(attention), 3);
  const TaskSet set = RandomTask(model.config, 13, 5, metric);
  const ResidualGraph graph(model.config);
  const std::vector<std::int64_t> nodes = HeadsAndMlps(graph);
  const PatchOptions options{.direction = direction, .ablation = ablation};
  const TaskRuns runs(model, set, /*batch_rows=*/31);
  const NodeEffects fast = PatchNodes(runs, nodes, options);
  const NodeEffects plain = PatchNodesByRerunning(runs, nodes, options);
  EXPECT_NEAR(fast.clean, ScoreTask(model, set).clean_metric, kTolerance);
  EXPECT_NEAR(fast.corrupted, ScoreTask(model, set).corrupted_metric, kTolerance);
  double largest = 0.0;
  for (const std::int64_t node : nodes) {
    const auto at = static_cast<std::size_t>(node);
    EXPECT_NEAR(fast.effect[at], plain.effect[at], kTolerance) << graph.NodeLabel(node);
    largest = std::max(largest, std::abs(plain.effect[at]));
  }
  EXPECT_GT(largest, metric == TaskMetric::kLogitDifference ? 0.1 : 0.005);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Patching,
    testing::Values(Case{AttentionKind::kSoftmax, Direction::kNoise, Ablation::kResample},
                    Case{AttentionKind::kSoftmax, Direction::kDenoise, Ablation::kResample},
                    Case{AttentionKind::kSoftmax, Direction::kNoise, Ablation::kMean},
                    Case{AttentionKind::kSoftmax, Direction::kNoise, Ablation::kZero},
                    Case{AttentionKind::kGated, Direction::kNoise, Ablation::kResample},
                    Case{AttentionKind::kGated, Direction::kDenoise, Ablation::kResample,
                         TaskMetric::kProbabilityDifference}));

// The same for every family, in one direction each.
TEST(PatchingFamilies, EqualsRerunningTheWholeModel) {
  for (const ModelConfig& config : DeepConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const TaskSet set = RandomTask(model.config, 9, 5);
    const std::vector<std::int64_t> nodes = HeadsAndMlps(ResidualGraph(model.config));
    for (const Ablation ablation : {Ablation::kResample, Ablation::kMean}) {
      const PatchOptions options{.ablation = ablation};
      const TaskRuns runs(model, set, /*batch_rows=*/31);
      const NodeEffects fast = PatchNodes(runs, nodes, options);
      const NodeEffects plain = PatchNodesByRerunning(runs, nodes, options);
      for (const std::int64_t node : nodes) {
        const auto at = static_cast<std::size_t>(node);
        EXPECT_NEAR(fast.effect[at], plain.effect[at], kTolerance) << node;
      }
    }
  }
}

TEST(PatchingBatches, ChangeNoBit) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kGated), 3);
  const TaskSet set = RandomTask(model.config, 13, 5);
  const std::vector<std::int64_t> nodes = HeadsAndMlps(ResidualGraph(model.config));
  const NodeEffects whole = PatchNodes({model, set}, nodes, {});
  for (const std::int64_t rows : {16, 31, 64}) {
    const NodeEffects cut = PatchNodes({model, set, rows}, nodes, {});
    EXPECT_EQ(cut.clean, whole.clean) << rows;
    EXPECT_EQ(cut.effect, whole.effect) << rows;
  }
}

TEST(PatchingEverything, IsTheOtherRunBitForBit) {
  for (const ModelConfig& config : DeepConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const TaskSet set = RandomTask(model.config, 6, 9);
    const ResidualGraph graph(model.config);
    const NodeSet all(static_cast<std::size_t>(graph.node_count()), true);
    for (const TaskBatch& batch : MakeTaskBatches(set, model.config)) {
      const KeptRun corrupted = RunAndKeep(model, set, batch, true);
      const Replacement replacement{.z = &corrupted.z, .mlp_out = &corrupted.mlp_out};
      ReplaceOutputs hooks(graph, {&all, 1}, replacement, batch.length, 0);
      const Pass pass{
          .model = model, .batch = batch.size(), .length = batch.length, .hooks = &hooks};
      Activations activations(model.config, batch.size(), batch.length, Keep::kNothing, 0);
      ForwardToFinalNorm(pass, batch.clean.data(), activations);
      const Buffer<float> last =
          LastRows(batch.size(), batch.length, model.config.width, activations.ln_f);
      EXPECT_EQ(LastMetrics(pass, set, batch, last.data()), corrupted.metrics);
    }
    // And the way that skips what it can, up to rounding.
    const NodeEffects plain = PatchNodes({model, set}, {}, {});
    EXPECT_NEAR(MetricsWithReplaced({model, set}, {all}, {})[0], plain.corrupted, kTolerance);
    EXPECT_NEAR(MetricsWithReplaced({model, set}, {all}, {.direction = Direction::kDenoise})[0],
                plain.clean, kTolerance);
  }
}

TEST(PatchingNothing, ChangesNothing) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kSoftmax), 3);
  const TaskSet set = RandomTask(model.config, 6, 9);
  const ResidualGraph graph(model.config);
  const NodeSet none(static_cast<std::size_t>(graph.node_count()), false);
  const NodeEffects plain = PatchNodes({model, set}, {}, {});
  EXPECT_EQ(MetricsWithReplaced({model, set}, {none}, {})[0], plain.clean);
  EXPECT_EQ(MetricsWithReplaced({model, set}, {none}, {.direction = Direction::kDenoise})[0],
            plain.corrupted);
  // Outputs replaced by their own values: twins that are the same prompt.
  TaskSet same = set;
  for (TaskItem& item : same.items) item.corrupted = item.clean;
  const NodeEffects effects = PatchNodes({model, same}, HeadsAndMlps(graph), {});
  for (const double effect : effects.effect) EXPECT_NEAR(effect, 0.0, kTolerance);
}

// Sets run side by side as far as they start alike; what they give must not depend on company.
TEST(PatchingSets, SideBySideEqualEachAlone) {
  for (const ModelConfig& config : DeepConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 5);
    const TaskSet set = RandomTask(model.config, 7, 3);
    const ResidualGraph graph(model.config);
    std::vector<NodeSet> sets;
    for (std::uint64_t n = 0; n < 23; ++n) {
      NodeSet nodes(static_cast<std::size_t>(graph.node_count()), false);
      for (const std::int64_t node : HeadsAndMlps(graph)) {
        const auto at = static_cast<std::uint64_t>(node);
        nodes[at] = Mix64(1000 * n + at) % 10 < n % 5;  // none to nearly half
      }
      sets.push_back(nodes);
    }
    for (const Ablation ablation : {Ablation::kResample, Ablation::kZero}) {
      const PatchOptions options{.ablation = ablation};
      const std::vector<double> together = MetricsWithReplaced({model, set}, sets, options);
      ASSERT_EQ(together.size(), sets.size());
      std::set<double> different;
      for (std::size_t n = 0; n < sets.size(); ++n) {
        const double alone = MetricsWithReplaced({model, set}, {sets[n]}, options)[0];
        EXPECT_NEAR(together[n], alone, 1e-5 * (1.0 + std::abs(alone))) << n;
        different.insert(alone);
      }
      EXPECT_GT(different.size(), 15u);
    }
  }
}

TEST(PatchingBatches, SizeAndThreadsDoNotMatter) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kGated), 3);
  const TaskSet set = RandomTask(model.config, 17, 2);
  const std::vector<std::int64_t> nodes = HeadsAndMlps(ResidualGraph(model.config));
  const NodeEffects expected = PatchNodes({model, set}, nodes, {});
  for (const int count : {1, 2, 3}) {
    const UseThreads scope(count);
    for (const std::int64_t rows : {1, 13, 64, 4096}) {
      const NodeEffects found = PatchNodes({model, set, rows}, nodes, {});
      for (std::size_t node = 0; node < expected.effect.size(); ++node) {
        EXPECT_NEAR(found.effect[node], expected.effect[node], kTolerance) << rows;
      }
    }
  }
}

TEST(TaskBatches, HoldEveryItemOnceWithItsTwin) {
  const ModelConfig config = OddConfig();
  const TaskSet set = RandomTask(config, 29, 4);
  std::vector<bool> seen(set.items.size(), false);
  for (const TaskBatch& batch : MakeTaskBatches(set, config, 24)) {
    EXPECT_TRUE(batch.size() == 1 || batch.size() * batch.length <= 24);
    EXPECT_LT(batch.shared, batch.length);
    for (std::int64_t b = 0; b < batch.size(); ++b) {
      const TaskItem& item = set.items[batch.items[static_cast<std::size_t>(b)]];
      EXPECT_FALSE(seen[batch.items[static_cast<std::size_t>(b)]]);
      seen[batch.items[static_cast<std::size_t>(b)]] = true;
      for (std::int64_t t = 0; t < batch.length; ++t) {
        const auto at = static_cast<std::size_t>(b * batch.length + t);
        EXPECT_EQ(batch.clean[at], item.clean[static_cast<std::size_t>(t)]);
        EXPECT_EQ(batch.corrupted[at], item.corrupted[static_cast<std::size_t>(t)]);
        EXPECT_TRUE(t >= batch.shared || batch.clean[at] == batch.corrupted[at]);
      }
    }
  }
  EXPECT_THAT(seen, testing::Each(true));
}

TEST(TaskBatches, RefuseWhatTheModelCannotTake) {
  const ModelConfig config = OddConfig();
  const auto error = [&](auto change) {
    TaskSet set = RandomTask(config, 3, 4);
    change(set.items[1]);
    return ErrorOf([&] { MakeTaskBatches(set, config); });
  };
  EXPECT_THAT(error([](TaskItem& item) { item.corrupted.push_back(0); }),
              testing::HasSubstr("twins need one length"));
  EXPECT_THAT(error([](TaskItem& item) { item.answers = {23}; }),
              testing::HasSubstr("answer 23 is outside the vocabulary of 23"));
  EXPECT_THAT(error([](TaskItem& item) { item.answers = {}; }), testing::HasSubstr("no answer"));
  EXPECT_THAT(error([](TaskItem& item) { item.clean[0] = -1; }), testing::HasSubstr("-1"));
  EXPECT_THAT(error([](TaskItem& item) {
                item.clean.assign(18, 1);
                item.corrupted.assign(18, 2);
              }),
              testing::HasSubstr("17 positions"));
  EXPECT_THAT(ErrorOf([&] { MakeTaskBatches(TaskSet{.name = "none"}, config); }),
              testing::HasSubstr("no prompts"));
}

}  // namespace
}  // namespace clearhead
