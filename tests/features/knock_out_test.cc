// SPDX-License-Identifier: MIT
// What the graph says about closing cells of attention, and about switching features off, beside
// runs in which that is done.
#include "features/knock_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "features/carriers.h"
#include "features/frozen_run.h"
#include "features/golden_graphs.h"
#include "features/intervention_check.h"
#include "features/random_transcoder.h"
#include "model/model_testing.h"

namespace clearhead {
namespace {

class KnockOutTest : public GoldenGraphTest {};
INSTANTIATE_TEST_SUITE_P(Cases, KnockOutTest, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

// Skips are linear and go on, which frozen MLP outputs do not.
std::vector<std::string> CasesWithoutSkips() {
  std::vector<std::string> names = FeatureCaseNames();
  std::erase(names, "dense-plt-skip");
  return names;
}
class FrozenKnockOutTest : public GoldenGraphTest {};
INSTANTIATE_TEST_SUITE_P(Cases, FrozenKnockOutTest, testing::ValuesIn(CasesWithoutSkips()),
                         [](const auto& info) { return PlainName(info.param); });

// Attention, divisors and MLP outputs as they were in a run, a few cells closed.
class FrozenButClosed final : public Hooks {
 public:
  FrozenButClosed(const Model& model, const FrozenRun& frozen, std::vector<std::int64_t> heads,
                  std::int64_t query, std::int64_t key)
      : model_(model), frozen_(frozen), heads_(std::move(heads)), query_(query), key_(key) {}

  bool Wants(TapId id) const override {
    return frozen_.Find(id) != nullptr || id.tap == Tap::kLn1Normalized ||
           id.tap == Tap::kLn2Normalized || id.tap == Tap::kLnFinalNormalized;
  }
  bool Changes(TapId id) const override { return Wants(id); }
  void Visit(TapId id, const TensorView<float>& value) override {
    if (id.tap == Tap::kLn1Scale || id.tap == Tap::kLn2Scale || id.tap == Tap::kLnFinalScale) {
      divisors_.assign(value.data, value.data + value.shape.size());
      return;
    }
    if (id.tap == Tap::kMlpOut) {
      const RecordedTensor& before = *frozen_.Find(id);
      std::copy(before.values.begin(), before.values.end(), value.data);
      return;
    }
    if (id.tap != Tap::kResidMid) HoldValue(frozen_, model_, id, divisors_, value);
    if (id.tap != Tap::kPattern) return;
    const std::int64_t H = model_.config.heads, T = value.shape[2];
    for (const std::int64_t head : heads_) {
      if (head / H == id.layer) value.data[(head % H * T + query_) * T + key_] = 0.0f;
    }
  }

 private:
  const Model& model_;
  const FrozenRun& frozen_;
  std::vector<std::int64_t> heads_;
  std::int64_t query_, key_;
  std::vector<float> divisors_;
};

TEST_P(FrozenKnockOutTest, FrozenRunsLoseWhatTheCellsCarry) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const std::int64_t T = prompt.length(), query = T - 1, key = 2, C = model.config.width;
  const MeasuredTarget target{.logit = graph.logits[0]};
  const std::vector<std::int64_t> heads = {0, 2, 3};
  const FrozenRun frozen = KeepForFreezing(model, transcoder, prompt.ids, 1, Freeze::kAll, {});
  const std::vector<float> direction = DirectionOf(prompt, graph.logits[0]);
  const auto measure = [&](const std::vector<std::int64_t>& closed) {
    FrozenButClosed hooks(model, frozen, closed, query, key);
    const Pass pass{.model = model, .batch = 1, .length = T, .hooks = &hooks};
    Activations activations(model.config, 1, T, Keep::kNothing, 0);
    ForwardToFinalNorm(pass, prompt.ids.data(), activations);
    return std::inner_product(direction.begin(), direction.end(), activations.ln_f + query * C,
                              0.0);
  };
  EXPECT_NEAR(measure({}), graph.logits[0].value, 1e-5);
  EXPECT_NEAR(measure(heads),
              MeasureKnockOut(prompt, target, heads, query, key, KnockOutMode::kFrozen), 2e-5);
  EXPECT_GT(std::abs(measure(heads) - measure({})), 1e-3);
}

TEST_P(KnockOutTest, OtherModesRunTheModel) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const std::int64_t query = prompt.length() - 1, key = 1;
  MeasuredTarget feature;
  for (const ActiveFeature& f : graph.features) {
    if (f.layer == model.config.layers - 1 && f.position == query) feature.features = {f};
  }
  ASSERT_FALSE(feature.features.empty());
  const std::vector<std::int64_t> heads = {0, 1};
  for (const MeasuredTarget& target : {feature, MeasuredTarget{.logit = graph.logits[0]}}) {
    const double before = target.logit ? target.logit->value : target.features[0].activation;
    for (const KnockOutMode mode :
         {KnockOutMode::kFrozen, KnockOutMode::kAttention, KnockOutMode::kFree}) {
      EXPECT_NEAR(MeasureKnockOut(prompt, target, {}, query, key, mode), before, 1e-5);
    }
    // The first layer's weights are what they are in any mode: only what follows differs.
    EXPECT_NE(MeasureKnockOut(prompt, target, heads, query, key, KnockOutMode::kFree), before);
  }
  // All heads of all cells closed is all of the effect; nothing closed is none of it.
  std::vector<std::int64_t> all(static_cast<std::size_t>(model.config.layers * model.config.heads));
  std::iota(all.begin(), all.end(), 0);
  const MeasuredTarget logit{.logit = graph.logits[0]};
  const KnockOutShare whole =
      CheckByKnockOut(prompt, logit, all, query, key, KnockOutMode::kFree, 3, 1);
  EXPECT_EQ(whole.share, 1.0);  // the same bits, whatever else is in the batch
  EXPECT_EQ(whole.random_mean, 1.0);
  const KnockOutShare none =
      CheckByKnockOut(prompt, logit, {}, query, key, KnockOutMode::kFrozen, 2, 1);
  EXPECT_EQ(none.share, 0.0);
}

TEST_P(KnockOutTest, SetsSideBySideAreAsOneByOne) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const std::int64_t query = prompt.length() - 1, key = 1;
  // More than one batch of them.
  std::vector<std::vector<std::int64_t>> sets = {{}};
  const std::int64_t heads = model.config.layers * model.config.heads;
  while (static_cast<std::int64_t>(sets.size()) * prompt.length() < 300) {
    std::vector<std::int64_t> set = sets.back();
    if (static_cast<std::int64_t>(set.size()) == heads) set.clear();
    set.push_back(static_cast<std::int64_t>(sets.size()) % heads);
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
    sets.push_back(set);
  }
  MeasuredTarget feature;
  for (const ActiveFeature& f : graph.features) {
    if (f.layer > 0 && f.position == query) feature.features.push_back(f);
  }
  for (const MeasuredTarget& target : {feature, MeasuredTarget{.logit = graph.logits[0]}}) {
    for (const KnockOutMode mode :
         {KnockOutMode::kFrozen, KnockOutMode::kAttention, KnockOutMode::kFree}) {
      const std::vector<double> all = MeasureKnockOuts(prompt, target, sets, query, key, mode);
      ASSERT_EQ(all.size(), sets.size());
      for (std::size_t i = 0; i < sets.size(); i += 7) {
        EXPECT_EQ(all[i], MeasureKnockOut(prompt, target, sets[i], query, key, mode));
      }
    }
  }
}

TEST_P(KnockOutTest, EdgesPredictWhatSwitchingOffDoes) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const InterventionCheck check = CheckInterventions(prompt, graph, 12);
  EXPECT_EQ(check.interventions, 12);
  EXPECT_GT(check.predictions, 100);
  EXPECT_GT(check.largest_prediction, 0.1);
  EXPECT_LE(check.largest_difference, 1e-5);
  EXPECT_GT(check.frozen_attention_correlation, 0.1);
  EXPECT_LE(std::abs(check.free_correlation), 1.0);
}

TEST_P(KnockOutTest, CarriersSayTheSameInSeveralWays) {
  const FrozenPrompt prompt = RunPrompt(0);
  const AttributionGraph graph = GraphOf(prompt);
  const GraphScores scores = ScoreGraph(graph);
  const std::int64_t query = prompt.length() - 1, key = 2;
  const CarrierEdge edge{.query = query,
                         .key = key,
                         .from = "all",
                         .to = "logit",
                         .sources = SourcesAt(graph, key),
                         .targets = {},
                         .logit = graph.logits[0]};
  const Carriers carriers = FindCarriers(prompt, graph, scores, edge, {.random_sets = 4});
  // The edge is the sum of the row's entries at the key.
  double sum = 0.0;
  const float* row = graph.Row(static_cast<std::int64_t>(graph.traced.size()));
  for (const std::int64_t s : edge.sources) sum += row[s];
  EXPECT_NEAR(carriers.split.edge, sum, 1e-4);
  EXPECT_EQ(static_cast<std::int64_t>(carriers.heads.size()), carriers.n80_one_hop);
  double share = 0.0;
  for (const CarrierHead& head : carriers.heads) {
    share += head.share;
    EXPECT_EQ(head.gate.has_value(), model.config.attention == AttentionKind::kGated);
    if (head.gate) {
      EXPECT_GT(head.gate->margin, 0.0) << "a head that carries is open";
    }
  }
  EXPECT_GE(share, 0.8);
  ASSERT_EQ(carriers.counts.size(), 8u);
  const auto count = [&](std::string_view name) -> const CarrierCount& {
    const auto it = std::find_if(carriers.counts.begin(), carriers.counts.end(),
                                 [&](const CarrierCount& c) { return c.name == name; });
    EXPECT_NE(it, carriers.counts.end()) << name;
    return *it;
  };
  EXPECT_EQ(count("position to logit").heads, static_cast<double>(carriers.n80_one_hop));
  EXPECT_EQ(count("position to logit").values, carriers.split.one_hop);
  const CarrierCount& pair = count("strongest pair of features");
  EXPECT_NEAR(*pair.edge, *pair.direct + *pair.one_hop + *pair.multi_hop, 1e-9);
  EXPECT_GE(count("all feature edges, by influence").heads, 1.0);
  ASSERT_EQ(carriers.checks.size(), 3u);
  // Without features what is left needs none.
  const FrozenPrompt bare = FreezePrompt(model, nullptr, prompt.ids);
  const AttributionGraph bare_graph = Trace(bare, {.logits = {.tokens = TargetsOf(golden)}});
  EXPECT_EQ(CountCarriers(bare, bare_graph, ScoreGraph(bare_graph), 0, query, key, 0.8).size(), 3u);
}

}  // namespace
}  // namespace clearhead
