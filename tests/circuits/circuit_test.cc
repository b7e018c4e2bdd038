// SPDX-License-Identifier: MIT
#include "circuits/circuit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "circuits/attention_edges.h"
#include "circuits/attribution.h"
#include "circuits/edge_circuit.h"
#include "circuits/task_score.h"
#include "circuits/toy_models.h"
#include "model/ungroup.h"

namespace clearhead {
namespace {

using testing::UnorderedElementsAre;

std::vector<std::string> Labels(const ResidualGraph& graph, std::span<const std::int64_t> nodes) {
  std::vector<std::string> labels;
  for (const std::int64_t node : nodes) labels.push_back(graph.NodeLabel(node));
  return labels;
}

// Heads by falling |effect|.
std::vector<std::int64_t> RankedHeads(const ResidualGraph& graph,
                                      const std::vector<double>& effects) {
  std::vector<std::int64_t> heads;
  for (const std::int64_t node : RankByImportance(effects)) {
    if (graph.IsHead(node)) heads.push_back(node);
  }
  return heads;
}

class BuiltInduction : public testing::TestWithParam<AttentionKind> {
 protected:
  Model model = InductionModel(GetParam());
  TaskSet set = InductionTask(20, 3);
  ResidualGraph graph{model.config};
};

TEST_P(BuiltInduction, DoesItsTask) {
  const TaskScore score = ScoreTask(model, set);
  EXPECT_NEAR(score.accuracy, 1.0, 1e-9);
  EXPECT_GT(score.clean_metric, 3.0);
  EXPECT_LT(std::abs(score.corrupted_metric), 0.5);
  CheckModelDoesTask(set, ScoreItems(model, set));
}

TEST_P(BuiltInduction, CircuitIsTheTwoHeadsThatWereBuilt) {
  for (const Direction direction : {Direction::kNoise, Direction::kDenoise}) {
    const NodeEffects effects =
        PatchNodes({model, set}, graph.AllHeads(), {.direction = direction});
    const std::vector<std::int64_t> heads = RankedHeads(graph, effects.effect);
    EXPECT_THAT(Labels(graph, std::span(heads).first(2)), UnorderedElementsAre("L0H0", "L1H1"));
    const CircuitCurve curve = TraceHeads({model, set}, heads, effects.clean, {}, {});
    for (const CircuitMark& mark : curve.marks) {
      EXPECT_EQ(mark.size, 2) << mark.target;
      EXPECT_GE(mark.faithfulness, mark.target);
      EXPECT_LT(mark.random.faithfulness, mark.faithfulness);
    }
    EXPECT_EQ(curve.points.size(), 5u);
    EXPECT_EQ(curve.points.front().faithfulness, 0.0);
    EXPECT_EQ(curve.points.back().faithfulness, 1.0);
    EXPECT_LT(curve.points[1].faithfulness, 0.1);  // neither head does it alone
  }
  const std::vector<double> scores = Attribute({model, set}, {.steps = 5, .edges = false}).nodes;
  const std::vector<std::int64_t> heads = RankedHeads(graph, scores);
  EXPECT_THAT(Labels(graph, std::span(heads).first(2)), UnorderedElementsAre("L0H0", "L1H1"));
}

TEST_P(BuiltInduction, EdgesAreTheThreeThatDiffer) {
  const Attribution scores = Attribute({model, set}, {.steps = 5});
  const TaskScore score = ScoreTask(model, set);
  const EdgeCircuit circuit = TraceEdges({model, set}, scores.edges, score.clean_metric, {});
  std::vector<std::string> names;
  for (std::int64_t edge = 0; edge < graph.edge_count(); ++edge) {
    if (circuit.at[1][static_cast<std::size_t>(edge)]) names.push_back(graph.EdgeName(edge));
  }
  EXPECT_EQ(circuit.curve.marks[1].target, 0.90);
  // Twins differ in one token. What the queries and values of L1H1 read is the same in both.
  EXPECT_THAT(names, UnorderedElementsAre("input->a0.h0<v>", "a0.h0->a1.h1<k>", "a1.h1->logits"));
  EXPECT_NEAR(circuit.curve.points.back().faithfulness, 1.0, 1e-4);
  EXPECT_NEAR(circuit.curve.empty, score.corrupted_metric, 1e-5);
  EXPECT_LT(circuit.curve.At(0.9).random.faithfulness, 0.5);
}

TEST_P(BuiltInduction, AttentionEdgesAreCounted) {
  const std::vector<std::int64_t> heads = {graph.Head(0, 0), graph.Head(1, 1)};
  const TaskScore score = ScoreTask(model, set);
  const CircuitCurve curve = TraceHeads({model, set}, heads, score.clean_metric, {}, {});
  const AttentionEdges edges = CountAttentionEdges({model, set}, heads, curve);
  double all = 0.0, meant = 0.0;
  for (const TaskItem& item : set.items) {
    const auto length = static_cast<double>(item.clean.size());
    all += 2.0 * length * (length + 1.0) / 2.0;
    meant += length - 1.0 + 1.0;  // every position to the one before; the last to the answer
  }
  const auto items = static_cast<double>(set.items.size());
  EXPECT_NEAR(edges.all, all / items, 1e-9);
  EXPECT_NEAR(edges.open, (GetParam() == AttentionKind::kGated ? meant : all) / items, 1e-9);
  EXPECT_LE(edges.kept, edges.open + 1e-9);
  EXPECT_GE(edges.kept, 2.0);  // the answer's to the first copy, the last's to the answer
  EXPECT_LE(edges.kept, (GetParam() == AttentionKind::kGated ? meant : all / 2) / items + 1e-9);
  EXPECT_GE(edges.kept_faithfulness, 0.98);
}

INSTANTIATE_TEST_SUITE_P(Attention, BuiltInduction,
                         testing::Values(AttentionKind::kSoftmax, AttentionKind::kGated));

TEST(Curve, FindsTheSmallestSetsBetweenTheMeasuredSizes) {
  // Element i adds a part of the metric that falls with i; the order is 0, 1, 2, ...
  constexpr std::int64_t kTotal = 1000;
  std::vector<std::int64_t> order(kTotal);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto part = [](std::int64_t element) { return 1.0 / static_cast<double>(element + 40); };
  double full = 2.0, sum = 2.0;
  for (const std::int64_t element : order) full += part(element);
  std::int64_t measured = 0;
  const MeasureSets measure = [&](const std::vector<std::vector<std::int64_t>>& sets) {
    std::vector<double> metrics;
    for (const std::vector<std::int64_t>& set : sets) {
      double metric = 2.0;
      for (const std::int64_t element : set) metric += part(element);
      metrics.push_back(metric);
      ++measured;
    }
    return metrics;
  };
  const CircuitCurve curve = TraceCurve(order, full, measure, {});
  std::size_t next = 0;
  for (std::int64_t size = 1; size <= kTotal && next < curve.marks.size(); ++size) {
    sum += part(order[static_cast<std::size_t>(size - 1)]);
    while (next < curve.marks.size() && (sum - 2.0) / (full - 2.0) >= curve.marks[next].target) {
      EXPECT_EQ(curve.marks[next++].size, size);
    }
  }
  EXPECT_EQ(next, 4u);
  EXPECT_LT(measured, 160);
  EXPECT_EQ(curve.points.front().faithfulness, 0.0);
  EXPECT_NEAR(curve.points.back().faithfulness, 1.0, 1e-12);
  for (const RandomPoint& random : curve.random) {
    const double share = static_cast<double>(random.size) / kTotal;
    EXPECT_NEAR(random.faithfulness, share, 0.1);  // random sets carry their share
  }
}

TEST(Curve, OfOneElement) {
  const MeasureSets measure = [](const std::vector<std::vector<std::int64_t>>& sets) {
    std::vector<double> metrics;
    for (const auto& set : sets) metrics.push_back(set.empty() ? -1.0 : 3.0);
    return metrics;
  };
  const CircuitCurve curve = TraceCurve({0}, 3.0, measure, {});
  EXPECT_EQ(curve.At(0.99).size, 1);
  EXPECT_EQ(curve.empty, -1.0);
  EXPECT_NEAR(curve.area, 0.5, 1e-12);
  EXPECT_THAT(ErrorOf([&] {
                TraceCurve({0}, 3.0,
                           [](const auto& sets) { return std::vector<double>(sets.size(), 3.0); },
                           {});
              }),
              testing::HasSubstr("no part of the model carries the task"));
}

TEST(EdgeRuns, AllEdgesAreTheCleanRunAndNoneTheCorruptedOne) {
  for (const ModelConfig& config : DeepConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = Ungroup(LivelyModel(config, 3));
    const TaskSet set = RandomTask(model.config, 9, 5);
    const ResidualGraph graph(model.config);
    const auto count = static_cast<std::size_t>(graph.edge_count());
    const TaskScore score = ScoreTask(model, set);
    for (const std::int64_t rows : {1, 23, 512}) {
      const std::vector<double> metrics =
          MetricsOfEdgeSets({model, set, rows}, {EdgeSet(count, false), EdgeSet(count, true)});
      EXPECT_NEAR(metrics[0], score.corrupted_metric, 2e-5);
      EXPECT_NEAR(metrics[1], score.clean_metric, 2e-5);
    }
  }
}

// Keeping all edges but those out of some heads is replacing these heads' outputs.
TEST(EdgeRuns, AgreeWithReplacingNodes) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kSoftmax), 3);
  const TaskSet set = RandomTask(model.config, 9, 5);
  const ResidualGraph graph(model.config);
  NodeSet nodes(static_cast<std::size_t>(graph.node_count()), false);
  for (const std::int64_t node : {graph.Head(0, 2), graph.Head(1, 0), graph.Mlp(1)}) {
    nodes[static_cast<std::size_t>(node)] = true;
  }
  EdgeSet edges(static_cast<std::size_t>(graph.edge_count()), true);
  for (std::size_t edge = 0; edge < edges.size(); ++edge) {
    if (nodes[static_cast<std::size_t>(graph.SourceOfEdge(static_cast<std::int64_t>(edge)))]) {
      edges[edge] = false;
    }
  }
  EXPECT_NEAR(MetricsOfEdgeSets({model, set}, {edges})[0],
              MetricsWithReplaced({model, set}, {nodes}, {})[0], 2e-5);
}

TEST(EdgeRuns, PruningChangesNothing) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kSoftmax), 3);
  const TaskSet set = RandomTask(model.config, 5, 5);
  const ResidualGraph graph(model.config);
  RandomStream random(12);
  std::vector<EdgeSet> sets, pruned;
  std::int64_t removed = 0;
  for (const double share : {0.03, 0.08, 0.2}) {
    EdgeSet edges;
    for (std::int64_t edge = 0; edge < graph.edge_count(); ++edge) {
      edges.push_back(random.Uniform() < share);
    }
    sets.push_back(edges);
    pruned.push_back(PruneEdges(graph, edges));
    removed += std::count(edges.begin(), edges.end(), true) -
               std::count(pruned.back().begin(), pruned.back().end(), true);
    EXPECT_EQ(PruneEdges(graph, pruned.back()), pruned.back());
  }
  EXPECT_GT(removed, 10);
  const std::vector<double> before = MetricsOfEdgeSets({model, set}, sets),
                            after = MetricsOfEdgeSets({model, set}, pruned);
  for (std::size_t i = 0; i < sets.size(); ++i) EXPECT_NEAR(before[i], after[i], 2e-5);
}

TEST(ResidualGraph, OfGpt2HasTheKnownCounts) {
  const ResidualGraph graph(ModelConfig{.layers = 12, .heads = 12, .width = 768});
  EXPECT_EQ(graph.node_count(), 158);
  EXPECT_EQ(graph.edge_count(), 32491);
  EXPECT_EQ(graph.NodeName(graph.Head(5, 1)), "a5.h1");
  EXPECT_EQ(graph.NodeLabel(graph.Head(5, 1)), "L5H1");
  const std::int64_t edge = graph.Edge(graph.Mlp(3), graph.HeadReader(9, 0, 6));
  EXPECT_EQ(graph.EdgeName(edge), "m3->a9.h6<q>");
  EXPECT_EQ(graph.EdgeName(graph.Edge(0, graph.LogitsReader())), "input->logits");
  for (std::int64_t e = 0; e < graph.edge_count(); e += 97) {
    EXPECT_EQ(graph.Edge(graph.SourceOfEdge(e), graph.ReaderOfEdge(e)), e);
  }
}

TEST(CheckModelDoesTask, RefusesAModelThatDoesNot) {
  const Model model = LivelyModel(OddConfig(), 3);
  const TaskSet set = RandomTask(model.config, 40, 5);
  EXPECT_THAT(ErrorOf([&] { CheckModelDoesTask(set, ScoreItems(model, set)); }),
              testing::HasSubstr("the model cannot do task 'random'"));
}

}  // namespace
}  // namespace clearhead
