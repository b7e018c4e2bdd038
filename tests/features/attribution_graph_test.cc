// SPDX-License-Identifier: MIT
// Attribution graphs against values that another implementation computed by automatic
// differentiation in double, and against what must hold in any model: rows add up, and a source
// that is pushed forward alone gives its edge.
#include "features/attribution_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/threads.h"
#include "features/frozen_linear.h"
#include "features/golden_graphs.h"
#include "features/influence.h"
#include "features/random_transcoder.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

INSTANTIATE_TEST_SUITE_P(Cases, GoldenGraphTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

TEST_P(GoldenGraphTest, RunsKeepWhatIsFrozen) {
  for (int i = 0; i < 2; ++i) {
    const GoldenPrompt& prompt = golden.prompts[i];
    const FrozenPrompt run = RunPrompt(i);
    std::vector<float> attention, input, mlp_out, error, logits, values;
    std::vector<std::int32_t> features;
    for (const FrozenLayer& layer : run.layers) {
      attention.insert(attention.end(), layer.weights.begin(), layer.weights.end());
      input.insert(input.end(), layer.input.begin(), layer.input.end());
      mlp_out.insert(mlp_out.end(), layer.mlp_out.begin(), layer.mlp_out.end());
      error.insert(error.end(), layer.error.begin(), layer.error.end());
    }
    for (std::int64_t t = 0; t < run.length(); ++t) {
      const std::vector<float> row = LogitsAt(run, t);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    for (const ActiveFeature& f : ActiveFeaturesOf(run)) {
      features.insert(features.end(), {f.layer, f.position, f.feature});
      values.push_back(f.activation);
    }
    ExpectNear(attention, prompt.prefix + "attn");
    ExpectNear(input, prompt.prefix + "input");
    ExpectNear(mlp_out, prompt.prefix + "mlp_out");
    ExpectNear(error, prompt.prefix + "error");
    ExpectNear(logits, prompt.prefix + "logits");
    ExpectNear(values, prompt.prefix + "values");
    EXPECT_EQ(features, prompt.features);
  }
}

TEST_P(GoldenGraphTest, EdgesAndTheirSums) {
  const FrozenPrompt run = RunPrompt(0);
  const AttributionGraph graph = GraphOf(run);
  const auto& shape = golden.tensors.at("graph.edges").shape;
  ASSERT_EQ(graph.rows(), shape[0]);
  ASSERT_EQ(graph.nodes.columns(), shape[1]);
  ExpectNear(Floats(graph.edges), "graph.edges");
  ExpectNear(Floats(graph.targets), "graph.targets");
  std::vector<double> sums;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    sums.push_back(std::accumulate(graph.Row(r), graph.Row(r) + graph.nodes.columns(), 0.0));
  }
  ExpectNear(Floats(sums), "graph.targets");
  const auto probabilities = golden.json["graph"]["probabilities"].get<std::vector<double>>();
  for (std::size_t i = 0; i < graph.logits.size(); ++i) {
    EXPECT_NEAR(graph.logits[i].probability, probabilities[i], 1e-6);
  }
}

TEST_P(GoldenGraphTest, InfluencePruningAndScores) {
  const AttributionGraph whole = GraphOf(RunPrompt(0));
  const AttributionGraph compatible = CompatibleGraph(whole);
  ExpectNear(Floats(compatible.edges), "ct.edges");
  {
    std::vector<std::int32_t> kept;
    for (std::size_t i = 0; i < whole.features.size(); ++i) {
      if (whole.features[i].position > 0) kept.push_back(static_cast<std::int32_t>(i));
    }
    EXPECT_EQ(kept, Whole<std::int32_t>("ct.features"));
  }
  for (const bool ct : {false, true}) {
    const AttributionGraph& graph = ct ? compatible : whole;
    const std::string prefix = ct ? "ct." : "graph.";
    const Json& json = golden.json[ct ? "ct" : "graph"];
    const GraphScores scores = ScoreGraph(graph);
    ExpectNear(Floats(scores.influence), prefix + "influence");
    ExpectNear(Floats(scores.cumulative), prefix + "cumulative", 2e-3);
    const PrunedGraph pruned = PruneGraph(graph, scores);
    EXPECT_EQ(pruned.nodes, Whole<std::uint8_t>(prefix + "node_mask"));
    EXPECT_EQ(pruned.edges, Whole<std::uint8_t>(prefix + "edge_mask"));
    EXPECT_EQ(pruned.nodes_kept, json["nodes_kept"].get<std::int64_t>());
    EXPECT_EQ(pruned.edges_kept, json["edges_kept"].get<std::int64_t>());
    EXPECT_NEAR(pruned.node_cut, json["node_cut"].get<double>(), 1e-6);
    EXPECT_NEAR(pruned.edge_cut, json["edge_cut"].get<double>(), 1e-6);
    if (!ct) ExpectNear(Floats(pruned.edge_scores), "graph.edge_scores");
    EXPECT_NEAR(scores.replacement, json["replacement"].get<double>(), 1e-5);
    EXPECT_NEAR(scores.completeness, json["completeness"].get<double>(), 1e-5);
    if (!ct) {
      EXPECT_NEAR(scores.replacement_tokens_only, json["replacement_tokens_only"].get<double>(),
                  1e-5);
    }
    EXPECT_EQ(scores.untraced, 0.0);
  }
}

// To rounding: products may sum in another order.
TEST_P(GoldenGraphTest, BatchesAndThreadsDoNotMatter) {
  const FrozenPrompt run = RunPrompt(0);
  const AttributionGraph graph = GraphOf(run);
  GraphOptions options{.logits = {.tokens = TargetsOf(golden)}};
  for (const auto& [targets, rows] : {std::pair{1, 1}, std::pair{7, 1 << 14}, std::pair{512, 20}}) {
    options.batch_targets = targets;
    options.batch_rows = rows;
    const AttributionGraph other = Trace(run, options);
    EXPECT_LE(MaxRelativeDifference(Floats(other.edges), Floats(graph.edges)), 1e-6);
  }
  ThreadPool pool(3);
  const ThreadScope scope(&pool);
  EXPECT_LE(MaxRelativeDifference(Floats(Trace(run, options).edges), Floats(graph.edges)), 1e-6);
}

TEST_P(GoldenGraphTest, FewerFeaturesAreThoseWithInfluence) {
  const FrozenPrompt run = RunPrompt(0);
  const AttributionGraph whole = GraphOf(run);
  GraphOptions options{.logits = {.tokens = TargetsOf(golden)}};
  options.max_features = whole.nodes.features / 2;
  const AttributionGraph some = Trace(run, options);
  EXPECT_LE(static_cast<std::int64_t>(some.traced.size()), options.max_features);
  ASSERT_EQ(some.nodes.columns(), whole.nodes.columns());
  // The rows that exist are the whole graph's.
  for (std::int64_t r = 0; r < some.rows(); ++r) {
    const std::int64_t node = some.NodeOfRow(r);
    const std::int64_t row =
        node < whole.nodes.features ? node : node - whole.nodes.columns() + whole.nodes.features;
    for (std::int64_t j = 0; j < whole.nodes.columns(); ++j) {
      ASSERT_NEAR(some.Row(r)[j], whole.Row(row)[j], 1e-5);
    }
    EXPECT_EQ(some.targets[r], whole.targets[row]);
  }
  // Nothing that was left out has more influence than the weakest that is in.
  const GraphScores scores = ScoreGraph(some);
  std::vector<bool> traced(some.features.size(), false);
  for (const std::int64_t f : some.traced) traced[f] = true;
  double weakest = 1e9, strongest = 0.0;
  for (std::size_t f = 0; f < traced.size(); ++f) {
    double& bound = traced[f] ? weakest : strongest;
    bound = traced[f] ? std::min(weakest, scores.influence[f])
                      : std::max(strongest, scores.influence[f]);
  }
  EXPECT_GT(scores.untraced, 0.0);
  EXPECT_LT(strongest, 20 * weakest);
  EXPECT_LT(scores.replacement, ScoreGraph(whole).replacement + 0.05);
}

// The forward maps are the backward ones' twins: a source alone, pushed up, changes the target by
// its edge.
TEST_P(GoldenGraphTest, ASourceAloneGivesItsEdge) {
  const FrozenPrompt run = RunPrompt(0);
  const AttributionGraph graph = GraphOf(run);
  const WrittenRows written(run, graph.features, graph.nodes);
  const std::int64_t L = model.config.layers, T = run.length(), C = model.config.width;
  for (std::int64_t node = 0; node < graph.nodes.Bias(); node += 17) {
    std::vector<float> u(static_cast<std::size_t>(T * C), 0.0f);
    const auto write = [&](std::int64_t layer) {
      for (std::int64_t p = 0; p < T; ++p) {
        const WrittenRows::Block block = written.At(layer, p);
        for (std::int64_t j = 0; j < block.count; ++j) {
          if (block.nodes[j] != node) continue;
          for (std::int64_t i = 0; i < C; ++i) u[p * C + i] += block.rows[j * C + i];
        }
      }
    };
    const auto read = [&](const float* gradient, std::int64_t p) {
      double sum = 0.0;
      for (std::int64_t i = 0; i < C; ++i) sum += double{gradient[i]} * u[p * C + i];
      return sum;
    };
    std::vector<float> gradient(static_cast<std::size_t>(C));
    double bias = 0.0;
    write(-1);
    for (std::int64_t l = 0; l < L; ++l) {
      FrozenAttentionForward(run, l, u.data());
      for (std::int64_t r = 0; r < graph.nodes.features; r += 5) {
        const ActiveFeature& f = graph.features[r];
        if (f.layer != l) continue;
        EncoderGradient(run, l, f.position, f.feature, gradient.data(), bias);
        EXPECT_NEAR(read(gradient.data(), f.position), graph.Row(r)[node], 1e-5);
      }
      FrozenMlpForward(run, l, u.data());
      write(l);
    }
    for (std::size_t i = 0; i < graph.logits.size(); ++i) {
      FinalGradient(run, T - 1, DirectionOf(run, graph.logits[i]), gradient.data(), bias);
      EXPECT_NEAR(read(gradient.data(), T - 1),
                  graph.Row(graph.nodes.features + static_cast<std::int64_t>(i))[node], 2e-5);
    }
  }
}

// Every family, every kind of transcoder that fits it: rows add up to what the run had.
TEST(AttributionGraph, RowsAddUpInEveryFamily) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    Model model = LivelyModel(config);
    if (config.clip_qkv) model.config.clip_qkv = 100.0f;
    const std::vector<std::int32_t> ids = RandomIds(config, 9, 5);
    for (const RandomTranscoderOptions& kind : RandomTranscoderKinds(config)) {
      const Transcoder transcoder = RandomTranscoder(model, kind);
      const FrozenPrompt run = FreezePrompt(model, &transcoder, ids);
      const AttributionGraph graph = Trace(run, {});
      ASSERT_GT(graph.nodes.features, 20);
      EXPECT_EQ(graph.nodes.positions, config.position == PositionKind::kLearned);
      for (std::int64_t r = 0; r < graph.rows(); ++r) {
        double sum = 0.0, magnitude = 0.0;
        for (std::int64_t j = 0; j < graph.nodes.columns(); ++j) {
          sum += graph.Row(r)[j];
          magnitude += std::abs(graph.Row(r)[j]);
        }
        EXPECT_NEAR(sum, graph.targets[r], 2e-6 * magnitude + 1e-6) << "row " << r;
      }
    }
  }
}

TEST(AttributionGraph, LogitsAreChosenByProbabilityOrGiven) {
  const Model model = LoadModel(FeatureGoldens() / "models/dense");
  const FrozenPrompt run = FreezePrompt(model, nullptr, std::vector<std::int32_t>{3, 8, 2, 11});
  const std::vector<LogitTarget> likeliest = ChooseLogits(run, {.mass = 0.3, .most = 5});
  double mass = 0.0;
  for (std::size_t i = 0; i < likeliest.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(likeliest[i - 1].probability, likeliest[i].probability);
    }
    EXPECT_LT(mass, 0.3);
    mass += likeliest[i].probability;
  }
  EXPECT_TRUE(mass >= 0.3 || likeliest.size() == 5);
  EXPECT_EQ(ChooseLogits(run, {.mass = 1.0, .most = 4}).size(), 4u);

  const std::vector<LogitTarget> contrast = ChooseLogits(run, {.contrast = std::pair{4, 9}});
  const AttributionGraph graph = Trace(run, {.logits = {.contrast = std::pair{4, 9}}});
  ASSERT_EQ(contrast.size(), 1u);
  const std::vector<float> logits = LogitsAt(run, 3);
  EXPECT_NEAR(contrast[0].value, logits[4] - logits[9], 1e-6);
  EXPECT_NEAR(std::accumulate(graph.Row(0), graph.Row(0) + graph.nodes.columns(), 0.0),
              contrast[0].value, 1e-5);
  // Without features everything that an MLP gives is an error.
  EXPECT_EQ(graph.nodes.features, 0);

  EXPECT_THAT([&] { ChooseLogits(run, {.tokens = {61}}); },
              ThrowsMessage<Error>(HasSubstr("outside the vocabulary of 61")));
  EXPECT_THAT(
      [&] {
        ChooseLogits(run, {.tokens = {6, 6}});
      },
      ThrowsMessage<Error>(HasSubstr("twice")));
  EXPECT_THAT(
      [&] {
        ChooseLogits(run, {.contrast = std::pair{4, 4}});
      },
      ThrowsMessage<Error>(HasSubstr("two different tokens")));
  EXPECT_THAT([&] { ChooseLogits(run, {.position = 4}); },
              ThrowsMessage<Error>(HasSubstr("position 4 is outside the prompt of 4 tokens")));
}

TEST(AttributionGraph, PositionsBeforeTrainingAreErrors) {
  const FeatureCase golden = ReadFeatureCase("gated-clt-jumprelu");
  const Model model = LoadModel(golden.model);
  Transcoder transcoder = LoadTranscoder(GoldenTranscoder(golden.name));
  transcoder.config.first_position = 1;
  const FrozenPrompt run = FreezePrompt(model, &transcoder, golden.prompts[0].ids);
  const AttributionGraph graph = Trace(run, {});
  for (const ActiveFeature& f : graph.features) EXPECT_GE(f.position, 1);
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    EXPECT_NEAR(std::accumulate(graph.Row(r), graph.Row(r) + graph.nodes.columns(), 0.0),
                graph.targets[r], 2e-5);
  }
  const FrozenPrompt all =
      FreezePrompt(model, &transcoder, golden.prompts[0].ids, {.first_position = 0});
  EXPECT_EQ(ActiveFeaturesOf(all).size() * 3, golden.prompts[0].features.size());
}

TEST(AttributionGraph, ClampedValuesAreRefused) {
  const ModelConfig config = FamilyConfig("olmo", /*gated=*/false);
  const Model model = LivelyModel(config);
  EXPECT_THAT([&] { FreezePrompt(model, nullptr, RandomIds(config, 9, 5)); },
              ThrowsMessage<Error>(HasSubstr("clip_qkv")));
}

}  // namespace
}  // namespace clearhead
