// SPDX-License-Identifier: MIT
// Edges split into heads, and scores into reasons, against values that another implementation
// computed in double.
#include "features/head_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "features/golden_graphs.h"
#include "features/query_key_reasons.h"
#include "features/random_transcoder.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class GoldenSplitTest : public GoldenGraphTest {};
INSTANTIATE_TEST_SUITE_P(Cases, GoldenSplitTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

double AbsoluteDifference(const std::vector<double>& found, const std::vector<float>& expected) {
  return MaxAbsDifference(Floats(found), expected);
}

TEST_P(GoldenSplitTest, HeadsBypassAndHops) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  int e = 0;
  for (const Json& json : golden.json["splits"]) {
    const std::string prefix = fmt::format("split{}.", e++);
    SCOPED_TRACE(prefix);
    const std::int64_t target = json["target"].get<std::int64_t>();
    const std::vector<std::int64_t> source = {json["source"].get<std::int64_t>()};
    const std::vector<std::int64_t> reader = {target};
    const HeadSplit split = SplitEdge(
        prompt, WrittenBy(prompt, graph.features, graph.nodes, source),
        target < graph.nodes.features ? ReadBy(prompt, graph.features, reader)
                                      : ReadBy(prompt, graph.logits[target - graph.nodes.features]),
        json["target_position"].get<std::int64_t>(), json["source_position"].get<std::int64_t>(),
        /*keep_pairs=*/true);
    EXPECT_LE(AbsoluteDifference(split.heads, golden.Values(prefix + "heads")), 1e-5);
    EXPECT_LE(AbsoluteDifference(split.one_hop, golden.Values(prefix + "one_hop")), 1e-5);
    EXPECT_LE(AbsoluteDifference(split.bypass, golden.Values(prefix + "bypass")), 1e-5);
    EXPECT_LE(AbsoluteDifference(split.later, golden.Values(prefix + "later")), 1e-5);
    EXPECT_LE(MaxAbsDifference(Floats(split.pairs), golden.Values(prefix + "pairs")), 1e-5);
    EXPECT_NEAR(split.edge, json["edge"].get<double>(), 1e-5);
    EXPECT_NEAR(split.edge, graph.Row(target)[source[0]], 1e-5);
    EXPECT_NEAR(split.direct, json["direct"].get<double>(), 1e-5);
    EXPECT_NEAR(split.one_hop_sum(), json["one_hop_sum"].get<double>(), 1e-5);
    EXPECT_NEAR(split.multi_hop, json["multi_hop"].get<double>(), 1e-5);
    EXPECT_EQ(CountForShare(split.one_hop, 0.8), json["n80_one_hop"].get<std::int64_t>());
    EXPECT_EQ(CountForShare(split.heads, 0.8), json["n80_heads"].get<std::int64_t>());
    const std::int64_t H = model.config.heads;
    for (std::int64_t l = 0; l < model.config.layers; ++l) {
      const double heads =
          std::accumulate(split.heads.begin() + l * H, split.heads.begin() + (l + 1) * H, 0.0);
      EXPECT_NEAR(heads + split.bypass[l] + split.later[l] + split.earlier[l], split.edge, 1e-5);
    }
  }
  EXPECT_GE(e, 5);
}

// All sources at the key with all targets at the query, and sums of them as one edge.
TEST_P(GoldenSplitTest, ManyEdgesAtOnce) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const std::int64_t key = 2, query = prompt.length() - 1;
  std::vector<std::int64_t> source_nodes = {graph.nodes.Error(0, key), graph.nodes.Token(key),
                                            graph.nodes.Position(key)};
  std::vector<std::int64_t> target_nodes;
  for (std::int64_t f = 0; f < graph.nodes.features; ++f) {
    if (graph.features[f].position == key) source_nodes.push_back(f);
    if (graph.features[f].position == query) target_nodes.push_back(f);
  }
  std::vector<StreamVectors> sources, targets;
  for (const std::int64_t node : source_nodes) {
    sources.push_back(WrittenBy(prompt, graph.features, graph.nodes, {&node, 1}));
  }
  for (const std::int64_t node : target_nodes) {
    targets.push_back(ReadBy(prompt, graph.features, {&node, 1}));
  }
  targets.push_back(ReadBy(prompt, graph.logits[0]));
  const Buffer<float> all = OneHopOfAll(prompt, sources, targets, query, key);
  const auto S = static_cast<std::int64_t>(sources.size());
  const auto N = static_cast<std::int64_t>(targets.size());
  for (std::int64_t n = 0; n < N; n += 5) {
    for (std::int64_t s = 0; s < S; s += 4) {
      const HeadSplit split = SplitEdge(prompt, sources[s], targets[n], query, key);
      for (std::size_t i = 0; i < split.one_hop.size(); ++i) {
        EXPECT_NEAR(all[(static_cast<std::int64_t>(i) * N + n) * S + s], split.one_hop[i], 1e-5);
      }
    }
  }
  // Groups: the edge of sums is the sum of edges, and it is exact at every layer.
  const HeadSplit group =
      SplitEdge(prompt, WrittenBy(prompt, graph.features, graph.nodes, source_nodes),
                ReadBy(prompt, graph.features, target_nodes), query, key);
  double edges = 0.0;
  for (const std::int64_t t : target_nodes) {
    for (const std::int64_t s : source_nodes) edges += graph.Row(t)[s];
  }
  EXPECT_NEAR(group.edge, edges, 1e-4);
  const std::int64_t H = model.config.heads;
  for (std::int64_t l = 0; l < model.config.layers; ++l) {
    const double heads =
        std::accumulate(group.heads.begin() + l * H, group.heads.begin() + (l + 1) * H, 0.0);
    EXPECT_NEAR(heads + group.bypass[l] + group.later[l] + group.earlier[l], group.edge, 1e-4);
  }
}

TEST_P(GoldenSplitTest, ScoresAreSumsOfReasons) {
  const FrozenPrompt prompt = RunPrompt(0);
  const std::int64_t H = model.config.heads, T = prompt.length();
  const std::vector<float>& scores = golden.Values("p0.scores");
  int e = 0;
  for (const Json& json : golden.json["qk"]) {
    const std::string tensor = fmt::format("qk{}.matrix", e++);
    const std::int64_t layer = json["layer"].get<std::int64_t>(),
                       head = json["head"].get<std::int64_t>(),
                       query = json["query"].get<std::int64_t>(),
                       key = json["key"].get<std::int64_t>();
    const QueryKeyReasons reasons = ExplainScore(prompt, layer, head, query, key);
    EXPECT_LE(MaxAbsDifference(Floats(reasons.matrix), golden.Values(tensor)), 1e-5);
    const auto same = [](const std::vector<StreamTerm>& found, const Json& expected) {
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(NameOf(found[i].kind), expected[i][0].get<std::string>());
        EXPECT_EQ(found[i].layer, expected[i][1].get<std::int64_t>());
        EXPECT_EQ(found[i].index, expected[i][2].get<std::int64_t>());
      }
    };
    same(reasons.query_terms, json["query_terms"]);
    same(reasons.key_terms, json["key_terms"]);
    EXPECT_NEAR(reasons.score, json["score"].get<double>(), 1e-5);
  }
  // Every pair of every head, beside the run's own scores.
  for (std::int64_t l = 0; l < model.config.layers; ++l) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (const auto& [query, key] : {std::pair{T - 1, T - 1}, {T - 1, T - 4}, {1, 0}, {0, 0}}) {
        const QueryKeyReasons reasons = ExplainScore(prompt, l, h, query, key);
        const float score = scores[((l * H + h) * T + query) * T + key];
        EXPECT_NEAR(reasons.score, score, 1e-5);
        EXPECT_NEAR(std::accumulate(reasons.matrix.begin(), reasons.matrix.end(), 0.0), score,
                    2e-5);
        const std::vector<double> sums = reasons.QuerySums(), keys = reasons.KeySums();
        EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), score, 2e-5);
        EXPECT_NEAR(std::accumulate(keys.begin(), keys.end(), 0.0), score, 2e-5);
        // Leaving out a pair that turns the gate turns it.
        const GateMargin gate = MarginOfGate(reasons, 1.0);
        EXPECT_NEAR(gate.margin, score + 1.0, 1e-5);
        for (const TermPair& pair : gate.turning) {
          EXPECT_EQ(pair.value, reasons.At(pair.query, pair.key));
          EXPECT_LE((gate.margin - pair.value) * gate.margin, 0.0);
        }
      }
    }
  }
}

TEST(HeadSplit, EveryFamilyAddsUp) {
  for (const ModelConfig& config : TestConfigs()) {
    SCOPED_TRACE(NameOf(config));
    Model model = LivelyModel(config);
    if (config.clip_qkv) model.config.clip_qkv = 100.0f;
    const std::vector<std::int32_t> ids = RandomIds(config, 9, 5);
    Recorder recorder({{Tap::kScores, 1}}, {}, {});
    const Pass pass{.model = model, .batch = 1, .length = 9, .hooks = &recorder};
    Activations activations(model.config, 1, 9, Keep::kNothing, 0);
    ForwardToFinalNorm(pass, ids.data(), activations);
    const Buffer<float>& scores = recorder.values().at({Tap::kScores, 1}).values;
    for (const RandomTranscoderOptions& kind : RandomTranscoderKinds(config)) {
      const Transcoder transcoder = RandomTranscoder(model, kind);
      const FrozenPrompt prompt = FreezePrompt(model, &transcoder, ids);
      const AttributionGraph graph = Trace(prompt, {});
      const std::int64_t L = config.layers, H = config.heads, T = 9, key = 3, query = 7;
      // The stream is the sum of its terms.
      const StreamSum sum = StreamTermsAt(prompt, 1, query);
      for (std::int64_t i = 0; i < config.width; ++i) {
        double whole = 0.0;
        for (std::size_t t = 0; t < sum.terms.size(); ++t) {
          whole += sum.vectors[t * config.width + i];
        }
        EXPECT_NEAR(whole, prompt.layers[1].resid_pre[query * config.width + i], 2e-5);
      }
      for (std::int64_t h = 0; h < H; ++h) {
        const QueryKeyReasons reasons = ExplainScore(prompt, 1, h, query, key);
        const double score = scores[(h * T + query) * T + key];
        EXPECT_NEAR(reasons.score, score, 2e-5);
        EXPECT_NEAR(std::accumulate(reasons.matrix.begin(), reasons.matrix.end(), 0.0), score,
                    5e-5);
      }
      std::vector<std::int64_t> sources = {graph.nodes.Token(key), graph.nodes.Error(0, key)};
      std::vector<std::int64_t> targets;
      for (std::int64_t f = 0; f < graph.nodes.features; ++f) {
        if (graph.features[f].position == key) sources.push_back(f);
        if (graph.features[f].position == query) targets.push_back(f);
      }
      const HeadSplit split =
          SplitEdge(prompt, WrittenBy(prompt, graph.features, graph.nodes, sources),
                    ReadBy(prompt, graph.features, targets), query, key);
      double edges = 0.0, magnitude = 0.0;
      for (const std::int64_t t : targets) {
        for (const std::int64_t s : sources) {
          edges += graph.Row(t)[s];
          magnitude += std::abs(graph.Row(t)[s]);
        }
      }
      EXPECT_NEAR(split.edge, edges, 2e-6 * magnitude);
      for (std::int64_t l = 0; l < L; ++l) {
        const double heads =
            std::accumulate(split.heads.begin() + l * H, split.heads.begin() + (l + 1) * H, 0.0);
        EXPECT_NEAR(heads + split.bypass[l] + split.later[l] + split.earlier[l], split.edge,
                    2e-6 * magnitude);
      }
    }
  }
}

TEST(HeadSplit, CountsHeadsByMagnitude) {
  const std::vector<double> values = {1.0, -5.0, 0.0, 3.0, 1.0};
  EXPECT_EQ(RankByMagnitude(values), (std::vector<std::int64_t>{1, 3, 0, 4, 2}));
  EXPECT_EQ(CountForShare(values, 0.8), 2);
  EXPECT_EQ(CountForShare(values, 0.81), 3);
  EXPECT_EQ(CountForShare(values, 1.0), 4);
  EXPECT_EQ(CountNonzero(values), 4);
  EXPECT_EQ(CountForShare(std::vector<double>(3, 0.0), 0.8), 0);
  // From the largest down the sum stays 1, below the total.
  std::vector<double> uneven(10, 1e-16);
  uneven.insert(uneven.end(), {1.0, 0.0, 0.0});
  EXPECT_EQ(CountForShare(uneven, 1.0), 11);
}

TEST(HeadSplit, RefusesWhatIsNoPair) {
  const Model model = LoadModel(FeatureGoldens() / "models/dense");
  const FrozenPrompt prompt = FreezePrompt(model, nullptr, std::vector<std::int32_t>{3, 8, 2});
  EXPECT_THAT([&] { SplitEdge(prompt, {}, {}, 3, 1); },
              ThrowsMessage<Error>(HasSubstr("query 3 and key 1 are no pair")));
  EXPECT_THAT([&] { ExplainScore(prompt, 0, 0, 1, 2); }, ThrowsMessage<Error>(HasSubstr("pair")));
  EXPECT_THAT([&] { ExplainScore(prompt, 2, 0, 1, 0); },
              ThrowsMessage<Error>(HasSubstr("2 layers of 2 heads")));
}

}  // namespace
}  // namespace clearhead
