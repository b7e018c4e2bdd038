// SPDX-License-Identifier: MIT
#include "circuits/attribution.h"

#include <gtest/gtest.h>

#include "circuits/edge_circuit.h"
#include "circuits/metric_gradient.h"
#include "circuits/task_score.h"
#include "circuits/toy_models.h"
#include "core/threads.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

// Effect on the metric of corrupting one edge while all others stay, for every edge.
std::vector<double> ExactEdgeEffects(const Model& model, const TaskSet& set) {
  const ResidualGraph graph(model.config);
  const EdgeSet all(static_cast<std::size_t>(graph.edge_count()), true);
  std::vector<EdgeSet> sets(all.size() + 1, all);
  for (std::size_t edge = 0; edge < all.size(); ++edge) sets[edge][edge] = false;
  std::vector<double> metrics = MetricsOfEdgeSets({model, set}, sets);
  const double full = metrics.back();
  metrics.pop_back();
  for (double& metric : metrics) metric = full - metric;
  return metrics;
}

double Largest(const std::vector<double>& values) {
  double largest = 0.0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST(Eap, EqualsExactPatchingOnALinearModel) {
  const Model model = LinearModel(OddConfig());
  const TaskSet set = RandomTask(model.config, 5, 3);
  const ResidualGraph graph(model.config);
  const std::vector<double> exact = ExactEdgeEffects(model, set);
  ASSERT_GT(Largest(exact), 0.1);
  for (const std::int64_t steps : {0, 3}) {
    const Attribution scores = Attribute({model, set}, {.steps = steps});
    for (std::int64_t edge = 0; edge < graph.edge_count(); ++edge) {
      const auto at = static_cast<std::size_t>(edge);
      // fp32, with activations of 30 in the MLPs
      EXPECT_NEAR(scores.edges[at], exact[at], 1e-3) << graph.EdgeName(edge);
    }
    const std::vector<std::int64_t> nodes = HeadsAndMlps(graph);
    const NodeEffects effects = PatchNodes({model, set}, nodes, {});
    double direct = 0.0;
    for (std::int64_t node = 0; node < graph.source_count(); ++node) {
      const auto at = static_cast<std::size_t>(node);
      if (node > 0) {
        EXPECT_NEAR(scores.nodes[at], effects.effect[at], 1e-3);
      }
      direct += scores.edges[static_cast<std::size_t>(graph.Edge(node, graph.LogitsReader()))];
    }
    // What all sources do to the logits directly is all that happens.
    EXPECT_NEAR(direct, effects.clean - effects.corrupted, 1e-3);
  }
}

// Twins whose embeddings differ by `distance`: the upper half of the vocabulary is the lower half,
// moved a little.
std::pair<Model, TaskSet> NearTwins(AttentionKind attention, float distance) {
  ModelConfig config = DeepConfig(attention);
  config.vocabulary = 22;
  std::vector<float> values = LivelyParameters(config, 4);
  ModelValues tensors = BindContiguous(config, values.data());
  RandomStream random(5);
  for (std::int64_t i = 0; i < 11 * config.width; ++i) {
    tensors(Role::kTokenEmbedding)[11 * config.width + i] =
        tensors(Role::kTokenEmbedding)[i] + distance * static_cast<float>(random.Normal());
  }
  TaskSet set = RandomTask(config, 7, 6);
  for (TaskItem& item : set.items) {
    for (std::size_t t = 0; t < item.clean.size(); ++t) {
      item.clean[t] %= 11;
      const bool differs = t + 1 < item.clean.size() && t % 2 == 0;
      item.corrupted[t] = item.clean[t] + (differs ? 11 : 0);
    }
  }
  return {ModelOf(config, values), set};
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> differences = a;
  for (std::size_t i = 0; i < a.size(); ++i) differences[i] -= b[i];
  return Largest(differences);
}

// The error falls faster than the effects when the twins come closer.
TEST(Eap, EqualsExactPatchingToFirstOrder) {
  const auto errors = [](float distance) {  // relative: of edges, of nodes
    const auto [model, set] = NearTwins(AttentionKind::kSoftmax, distance);
    const Attribution scores = Attribute({model, set}, {});
    const std::vector<double> edges = ExactEdgeEffects(model, set);
    std::vector<double> node_scores = scores.nodes;
    node_scores[0] = 0.0;  // the input is no node that is patched
    const std::vector<double> nodes =
        PatchNodes({model, set}, HeadsAndMlps(ResidualGraph(model.config)), {}).effect;
    EXPECT_GT(Largest(edges), 0.05 * static_cast<double>(distance));
    return std::pair(LargestDifference(scores.edges, edges) / Largest(edges),
                     LargestDifference(node_scores, nodes) / Largest(nodes));
  };
  const auto [far_edges, far_nodes] = errors(0.02f);
  const auto [near_edges, near_nodes] = errors(0.004f);
  EXPECT_LT(near_edges, 0.02);
  EXPECT_LT(near_nodes, 0.05);
  EXPECT_LT(near_edges, 0.5 * far_edges);
  EXPECT_LT(near_nodes, 0.5 * far_nodes);
}

// Integrated gradients add up: along the whole way from corrupted to clean embeddings, the input's
// score is the whole difference.
TEST(EapIg, InputExplainsTheWholeDifference) {
  for (const TaskMetric metric :
       {TaskMetric::kLogitDifference, TaskMetric::kProbabilityDifference}) {
    const Model model = LivelyModel(DeepConfig(AttentionKind::kSoftmax), 3);
    const TaskSet set = RandomTask(model.config, 5, 8, metric);
    const TaskScore score = ScoreTask(model, set);
    const double difference = score.clean_metric - score.corrupted_metric;
    const double scale = metric == TaskMetric::kLogitDifference ? 1.0 : 0.05;
    const Attribution scores = Attribute({model, set}, {.steps = 300, .edges = false});
    EXPECT_NEAR(scores.nodes[0], difference, 0.02 * scale);
  }
}

TEST(Attribution, DoesNotDependOnBatchesOrThreads) {
  const Model model = LivelyModel(DeepConfig(AttentionKind::kGated), 3);
  const TaskSet set = RandomTask(model.config, 11, 8);
  const Attribution expected = Attribute({model, set}, {.steps = 2});
  for (const int count : {1, 2, 3}) {
    const UseThreads scope(count);
    for (const std::int64_t rows : {1, 29, 4096}) {
      const Attribution found = Attribute({model, set, rows}, {.steps = 2});
      EXPECT_EQ(found.edges, expected.edges);
      EXPECT_EQ(found.nodes, expected.nodes);
    }
  }
}

TEST(DirectContributions, AddUpToTheMetric) {
  for (const ModelConfig& config : DeepConfigs()) {
    SCOPED_TRACE(NameOf(config));
    const Model model = LivelyModel(config, 3);
    const TaskSet set = RandomTask(model.config, 9, 8);
    const DirectContributions direct = DirectLogitContributions({model, set});
    double sum = direct.bias;
    for (const double node : direct.nodes) sum += node;
    EXPECT_NEAR(sum, ScoreTask(model, set).clean_metric, 1e-5);
    EXPECT_GT(Largest(direct.nodes), 0.1);
  }
}

TEST(MetricGradient, IsTheDerivative) {
  RandomStream random(3);
  for (const TaskMetric metric :
       {TaskMetric::kLogitDifference, TaskMetric::kProbabilityDifference}) {
    TaskItem item;
    item.answers = {3, 5};
    item.wrongs = {0, 6, 1};
    std::vector<float> logits(7), gradient(7);
    for (float& logit : logits) logit = static_cast<float>(random.Normal());
    MetricGradient(item, metric, logits, gradient);
    for (std::size_t v = 0; v < logits.size(); ++v) {
      constexpr float kStep = 1.0f / 64;
      std::vector<float> up = logits, down = logits;
      up[v] += kStep;
      down[v] -= kStep;
      const double slope = (TaskMetricOf(item, metric, up) - TaskMetricOf(item, metric, down)) /
                           (static_cast<double>(up[v]) - static_cast<double>(down[v]));
      EXPECT_NEAR(gradient[v], slope, 1e-4);
    }
  }
}

}  // namespace
}  // namespace clearhead
