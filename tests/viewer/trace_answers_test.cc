// SPDX-License-Identifier: MIT
// Traces for the page: what adds up, what agrees with the library, what is refused.
#include "viewer/trace_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "features/knock_out.h"
#include "features/node_names.h"
#include "support/temporary_folder.h"
#include "use/record.h"
#include "viewer/changed_run.h"
#include "viewer/feature_answers.h"
#include "viewer/frame.h"
#include "viewer/small_features.h"
#include "viewer/trace_details.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrompt = "The cat sat on the other mat";

Json Cell(const Json& head, const Json& query, const Json& key) {
  return {{"head", head}, {"query", query}, {"key", key}};
}

// Models and features are made once: nothing here changes them.
class TraceAnswersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    std::vector<ModelPlace> places;
    for (const bool gated : {false, true}) {
      const std::filesystem::path folder = *folder_ / (gated ? "gated" : "dense");
      MakeSmallModel(folder, gated);
      places.push_back({folder, folder.filename().string(), MakeSmallFeatures(folder)});
    }
    MakeSmallModel(*folder_ / "bare");
    places.push_back({*folder_ / "bare", "bare", {}});
    set_ = std::make_unique<ModelSet>(LoadModelSet(places));
  }
  static void TearDownTestSuite() {
    set_.reset();
    folder_.reset();
  }

  static ParsedFrame Ask(TraceQuestionKind kind, const Json& question, TraceMemory& memory) {
    const TraceQuestion q = ParseTraceQuestion(kind, ToText(question, -1), *set_);
    return ParseFrame(AnswerTrace(kind, *set_, q, memory, {}));
  }
  static std::string Refusal(TraceQuestionKind kind, const Json& question) {
    TraceMemory memory;
    return ErrorOf([&] { Ask(kind, question, memory); });
  }
  static ParsedFrame Changed(const Json& question) {
    const PageQuestion q = ParseQuestion(QuestionKind::kChanged, ToText(question, -1), *set_);
    return ParseFrame(ChangedFrame(*set_, q, {}));
  }
  static TracedPrompt Traced(std::size_t model) {
    return TracePromptOf(*set_, model, set_->tokenizer.EncodePrompt(kPrompt), [] {});
  }

  static std::unique_ptr<TemporaryFolder> folder_;
  static std::unique_ptr<ModelSet> set_;
};
std::unique_ptr<TemporaryFolder> TraceAnswersTest::folder_;
std::unique_ptr<ModelSet> TraceAnswersTest::set_;

TEST_F(TraceAnswersTest, RowsOfTheGraphAddUpAndGroupsHaveEveryFeatureOnce) {
  for (const std::size_t m : {0u, 1u}) {
    TraceMemory memory;
    const ParsedFrame frame =
        Ask(TraceQuestionKind::kTrace, {{"prompt", kPrompt}, {"model", m}}, memory);
    const Json& header = frame.header;
    const std::size_t F = header["features"].size(), T = header["tokens"].size();
    ASSERT_GT(F, 5u);
    const std::size_t rows = F + header["logits"].size(), sources = F + 4 * T + 1;
    const std::span<const float> edges = frame.Array("edges"), targets = frame.Array("targets");
    ASSERT_EQ(edges.size(), rows * sources);
    for (std::size_t r = 0; r < rows; ++r) {
      const double sum =
          std::accumulate(edges.begin() + r * sources, edges.begin() + (r + 1) * sources, 0.0);
      EXPECT_NEAR(sum, targets[r], 1e-3 + 1e-4 * std::abs(targets[r])) << r;
    }
    EXPECT_NEAR(targets[F], header["logits"][0]["value"].get<double>(), 1e-3);
    std::multiset<std::size_t> grouped;
    for (const Json& group : header["groups"]) {
      for (const Json& f : group["features"]) {
        const Json& feature = header["features"][f.get<std::size_t>()];
        grouped.insert(f.get<std::size_t>());
        EXPECT_EQ(feature["position"], group["position"]);
        EXPECT_GE(feature["layer"], group["first_layer"]);
        EXPECT_LE(feature["layer"], group["last_layer"]);
        EXPECT_GE(feature["position"], 1);
      }
    }
    EXPECT_EQ(grouped.size(), F);
    EXPECT_EQ(std::set<std::size_t>(grouped.begin(), grouped.end()).size(), F);
    EXPECT_GT(header["replacement"].get<double>(), 0.0);
    EXPECT_LE(header["completeness"].get<double>(), 1.0);
  }
}

// Two ways to the same number: the sum of the graph's edges, and the split into heads.
TEST_F(TraceAnswersTest, HeadsOfAnEdgeAddUpToTheGraphsEdge) {
  for (const std::size_t m : {0u, 1u}) {
    const TracedPrompt traced = Traced(m);
    const GroupedGraph grouped = SumByGroups(traced.graph, traced.groups, traced.scores.influence);
    const std::vector<TraceEdge> edges = StrongestEdges(traced);
    ASSERT_GT(edges.size(), 20u);
    std::int64_t between = 0;
    for (std::size_t i = 0; i < 20; ++i) {
      const TraceEdge& edge = edges[i];
      const Json json = CarriersAnswer(traced, edge.from, edge.to);
      const TraceNode from = FindSource(traced, edge.from), to = FindTarget(traced, edge.to);
      double expected = 0.0;
      for (std::int64_t r = 0; r < traced.graph.rows(); ++r) {
        const std::int64_t node = traced.graph.NodeOfRow(r);
        const bool mine = to.logit
                              ? node == traced.graph.nodes.Logit(std::atoll(edge.to.c_str() + 6))
                              : std::find(to.nodes.begin(), to.nodes.end(), node) != to.nodes.end();
        for (const std::int64_t s : from.nodes) expected += mine ? traced.graph.Row(r)[s] : 0.0f;
      }
      const auto value = [&](const char* name) { return json[name].get<double>(); };
      const double scale = 1e-4 + 1e-4 * std::abs(expected);
      EXPECT_NEAR(value("edge"), expected, scale) << edge.from << " " << edge.to;
      EXPECT_NEAR(value("edge"), value("direct") + value("one_hop") + value("multi_hop"), 1e-3);
      double sum = 0.0, magnitude = 0.0, first = 0.0, previous = 1e30;
      std::size_t i80 = json["n80"].get<std::size_t>(), k = 0;
      for (const Json& head : json["heads"]) {
        const double one = head["value"].get<double>();
        EXPECT_LE(std::abs(one), previous);
        previous = std::abs(one);
        sum += one;
        magnitude += std::abs(one);
        if (k++ < i80) first += std::abs(one);
      }
      EXPECT_NEAR(sum, value("one_hop"), 1e-3);
      EXPECT_GE(first, 0.8 * magnitude * (1 - 1e-4));
      between += edge.key != edge.query ? 1 : 0;
    }
    EXPECT_GT(between, 0);
    EXPECT_TRUE(std::is_sorted(
        edges.begin(), edges.end(),
        [](const TraceEdge& a, const TraceEdge& b) { return a.strength > b.strength; }));
  }
}

TEST_F(TraceAnswersTest, ReasonsAddUpToTheScore) {
  for (const std::size_t m : {0u, 1u}) {
    TraceMemory memory;
    const Json json =
        Ask(TraceQuestionKind::kReasons,
            {{"prompt", kPrompt}, {"model", m}, {"head", "L1H2"}, {"query", 5}, {"key", 2}}, memory)
            .header;
    double sum = json["rest"].get<double>();
    for (const char* side : {"raise", "lower"}) {
      EXPECT_LE(json[side].size(), 6u);
      for (const Json& pair : json[side]) {
        EXPECT_EQ(pair["value"].get<double>() > 0.0, std::string(side) == "raise");
        sum += pair["value"].get<double>();
      }
    }
    EXPECT_NEAR(sum, json["score"].get<double>(), 1e-3);
    EXPECT_EQ(json["gate"].is_null(), m == 0);
  }
}

TEST_F(TraceAnswersTest, ACutWeightIsZeroAndNothingElse) {
  for (const std::size_t m : {0u, 1u}) {
    const std::vector<std::int32_t> ids = set_->tokenizer.EncodePrompt(kPrompt);
    const std::int64_t last = static_cast<std::int64_t>(ids.size()) - 1;
    const ParsedFrame frame =
        Changed({{"prompt", kPrompt},
                 {"model", m},
                 {"cut", Json::array({Cell("L0H1", last, 1), Cell("L1H0", last, last)})}});
    // What the check of carriers measures: the logit of the likeliest token without these weights.
    const TracedPrompt traced = Traced(m);
    const MeasuredTarget target{.logit = traced.graph.logits[0], .features = {}};
    const Model& model = set_->models[m].model;
    const ModelRun plain = RunModel(
        model, ids, 1,
        {.interventions = {
             {.tap = {Tap::kPattern, 0}, .positions = {last}, .heads = {1}, .keys = {1}},
             {.tap = {Tap::kPattern, 1}, .positions = {last}, .heads = {0}, .keys = {last}}}});
    const float* row = plain.logits.data() + last * model.config.vocabulary;
    const Json& after = frame.header["after"]["predictions"][last]["likeliest"];
    double sum = 0.0;
    for (std::int64_t v = 0; v < model.config.vocabulary; ++v) sum += std::exp(double{row[v]});
    for (const Json& likely : after) {
      EXPECT_NEAR(likely["probability"].get<double>(),
                  std::exp(double{row[likely["id"].get<std::int64_t>()]}) / sum, 1e-5);
    }
    const Json& before = frame.header["before"];
    EXPECT_NE(before["predictions"][last], frame.header["after"]["predictions"][last]);
    // Earlier positions do not see the last one.
    for (std::int64_t t = 0; t < last; ++t) {
      EXPECT_NEAR(before["predictions"][t]["loss"].get<double>(),
                  frame.header["after"]["predictions"][t]["loss"].get<double>(), 1e-4)
          << t;
    }
    const double free = MeasureKnockOut(traced.run, target, {}, last, 1, KnockOutMode::kFree);
    EXPECT_NEAR(free, traced.graph.logits[0].value, 1e-3);
  }
}

TEST_F(TraceAnswersTest, FeaturesAreScaledAndSetWhereTheyAreTold) {
  const TracedPrompt traced = Traced(0);
  const ActiveFeature* found = nullptr;  // that fires in the middle of the prompt
  for (const ActiveFeature& feature : traced.graph.features) {
    if (feature.position == 3 && feature.activation > 0.5f) found = &feature;
  }
  ASSERT_NE(found, nullptr);
  const std::string name = ToText(FeatureId{found->layer, found->feature});
  const auto run = [&](const Json& change) {
    return Changed({{"prompt", kPrompt}, {"features", Json::array({change})}}).header;
  };
  const auto difference = [](const Json& answer, std::size_t t) {
    const Json &a = answer["before"]["predictions"][t]["likeliest"][0],
               &b = answer["after"]["predictions"][t]["likeliest"][0];
    return a["id"] == b["id"]
               ? std::abs(a["probability"].get<double>() - b["probability"].get<double>())
               : 1.0;
  };
  const Json same = run({{"feature", name}, {"scale", 1.0}});
  const Json own = run({{"feature", name}, {"set", found->activation}, {"position", 3}});
  const Json off = run({{"feature", name}, {"set", 0}, {"position", 3}});
  const Json strong = run({{"feature", name}, {"scale", 20}});
  const std::size_t T = same["before"]["predictions"].size();
  double largest = 0.0;
  for (std::size_t t = 0; t < T; ++t) {
    EXPECT_LT(difference(same, t), 1e-6);
    EXPECT_LT(difference(own, t), 1e-4);
    if (t < 3) {
      EXPECT_LT(difference(off, t), 1e-6);
    }
    largest = std::max(largest, difference(off, t));
  }
  EXPECT_GT(largest, 1e-4);
  EXPECT_NE(strong["after"]["loss"], strong["before"]["loss"]);
  // Position 0 keeps what it is unless it is named.
  EXPECT_LT(difference(run({{"feature", name}, {"set", 50}}), 0), 1e-6);
}

TEST_F(TraceAnswersTest, TheLastPromptOfEachModelIsKept) {
  TraceMemory memory;
  const std::vector<std::int32_t> a = set_->tokenizer.EncodePrompt("The cat"),
                                  b = set_->tokenizer.EncodePrompt("The mat");
  int ran = 0;
  const auto count = [&] { ++ran; };
  const TracedPrompt* first = &memory.Of(*set_, 0, a, count);
  const int once = ran;
  EXPECT_GT(once, 0);
  EXPECT_EQ(&memory.Of(*set_, 0, a, count), first);
  EXPECT_EQ(ran, once);
  memory.Of(*set_, 1, b, count);
  EXPECT_EQ(&memory.Of(*set_, 0, a, count), first);
  EXPECT_EQ(memory.Of(*set_, 0, b, count).run.ids, b);
  // A trace that is stopped leaves nothing behind.
  EXPECT_THROW(memory.Of(*set_, 0, a, [] { throw Cancelled("stop"); }), Cancelled);
  EXPECT_EQ(memory.Of(*set_, 0, a, count).run.ids, a);
}

TEST_F(TraceAnswersTest, BadQuestionsGetOneClearLine) {
  const auto trace = [&](const Json& q) { return Refusal(TraceQuestionKind::kTrace, q); };
  EXPECT_THAT(trace(Json::array()), HasSubstr("must be a JSON object"));
  EXPECT_THAT(trace({{"model", 0}}), HasSubstr("no 'prompt'"));
  EXPECT_THAT(trace({{"prompt", kPrompt}, {"model", 3}}), HasSubstr("from 0 to 2"));
  EXPECT_THAT(trace({{"prompt", kPrompt}, {"model", 2}}), HasSubstr("bare was given no features"));
  EXPECT_THAT(trace({{"prompt", kPrompt}, {"head", "L0H0"}}), HasSubstr("'head' is not a field"));
  EXPECT_THAT(trace({{"prompt", kPrompt}, {"ablate", Json::array()}}), HasSubstr("not a field"));
  const auto carriers = [&](const Json& from, const Json& to) {
    return Refusal(TraceQuestionKind::kCarriers, {{"prompt", kPrompt}, {"from", from}, {"to", to}});
  };
  EXPECT_THAT(Refusal(TraceQuestionKind::kCarriers, {{"prompt", kPrompt}, {"from", "token@1"}}),
              HasSubstr("no 'to'"));
  EXPECT_THAT(carriers(7, "logit 0"), HasSubstr("must be a text"));
  EXPECT_THAT(carriers("token@99", "logit 0"), HasSubstr("outside the prompt"));
  EXPECT_THAT(carriers("errors@-1", "logit 0"), HasSubstr("outside the prompt"));
  EXPECT_THAT(carriers("others@x", "logit 0"), HasSubstr("a position after @"));
  EXPECT_THAT(carriers("group 999", "logit 0"), HasSubstr("there is no group 999"));
  EXPECT_THAT(carriers("group -1", "logit 0"), HasSubstr("no node"));
  EXPECT_THAT(carriers("L0F63@2", "logit 0"), HasSubstr("is not active"));  // never fires
  EXPECT_THAT(carriers("bias", "logit 0"), HasSubstr("no node"));
  EXPECT_THAT(carriers(std::string(99, 'x'), "logit 0"), HasSubstr("too long"));
  EXPECT_THAT(carriers("token@1", "logit 77"), HasSubstr("there is no logit 77"));
  EXPECT_THAT(carriers("token@1", "token@2"), HasSubstr("is no target"));
  EXPECT_THAT(carriers("token@1", "nonsense"), HasSubstr("no node of the trace"));
  const TracedPrompt traced = Traced(0);
  const std::string early = NameOf(traced.graph.features[0]);
  EXPECT_THAT(carriers(fmt::format("token@{}", traced.run.length() - 1), early),
              HasSubstr("nothing flows back"));
  const auto reasons = [&](const char* head, const Json& query, const Json& key) {
    return Refusal(TraceQuestionKind::kReasons,
                   {{"prompt", kPrompt}, {"head", head}, {"query", query}, {"key", key}});
  };
  EXPECT_THAT(reasons("L9H0", 3, 1), HasSubstr("no head of dense"));
  EXPECT_THAT(reasons("L0H0", 99, 1), HasSubstr("'query' is 99"));
  EXPECT_THAT(reasons("L0H0", 2, 3), HasSubstr("from 0 to 2"));
  EXPECT_THAT(reasons("L0H0", 2, "x"), HasSubstr("whole number"));
}

TEST_F(TraceAnswersTest, BadChangesGetOneClearLine) {
  const auto changed = [&](const char* list, const Json& change) {
    return ErrorOf([&] { Changed({{"prompt", kPrompt}, {list, change}}); });
  };
  const auto cut = [&](const Json& cell) { return changed("cut", Json::array({cell})); };
  EXPECT_THAT(changed("cut", 7), HasSubstr("must be a list"));
  EXPECT_THAT(changed("cut", Json(std::vector<int>(65, 0))), HasSubstr("at most 64"));
  EXPECT_THAT(cut(3), HasSubstr("list of objects"));
  EXPECT_THAT(cut({{"head", "L0H0"}, {"query", 3}}), HasSubstr("lacks 'key'"));
  EXPECT_THAT(cut({{"head", "L0H0"}, {"query", 99}, {"key", 0}}), HasSubstr("'query' is 99"));
  EXPECT_THAT(cut({{"head", "L0H0"}, {"query", 2}, {"key", 3}}), HasSubstr("from 0 to 2"));
  EXPECT_THAT(cut({{"head", "L0H0"}, {"query", 2}, {"key", 1}, {"x", 1}}),
              HasSubstr("not a field"));
  const auto feature = [&](const Json& change) {
    return changed("features", Json::array({change}));
  };
  EXPECT_THAT(feature({{"feature", "L0F1"}}), HasSubstr("either 'set' or 'scale'"));
  EXPECT_THAT(feature({{"feature", "L0F1"}, {"set", 1}, {"scale", 1}}), HasSubstr("either"));
  EXPECT_THAT(feature({{"feature", "L0F1"}, {"set", 1e9}}), HasSubstr("it must be a number"));
  EXPECT_THAT(feature({{"feature", "L0F1"}, {"set", "4"}}), HasSubstr("it must be a number"));
  EXPECT_THAT(feature({{"feature", "L0F999"}, {"set", 1}}), HasSubstr("F999"));
  EXPECT_THAT(feature({{"feature", "nonsense"}, {"set", 1}}), HasSubstr("nonsense"));
  EXPECT_THAT(feature({{"feature", "L0F1"}, {"set", 1}, {"position", 99}}),
              HasSubstr("'position' is 99"));
  EXPECT_THAT(ErrorOf([&] {
                Changed({{"prompt", kPrompt}, {"model", 2}, {"features", Json::array()}});
              }),
              HasSubstr("no features"));
}

TEST_F(TraceAnswersTest, ReportsHoldTheStrongestEdgesHeadsAndCuts) {
  const TracedPrompt traced = Traced(1);
  const PageQuestion q =
      ParseQuestion(QuestionKind::kRun, ToText(Json{{"prompt", kPrompt}}, -1), *set_);
  const Json details = TraceDetails(*set_, q, 1, traced);
  ASSERT_FALSE(details["carriers"].empty());
  EXPECT_LE(details["carriers"].size(),
            static_cast<std::size_t>(kReportEdges + kReportEdgesWithin));
  std::size_t heads = 0;
  for (const auto& [name, edge] : details["carriers"].items()) {
    EXPECT_EQ(name, fmt::format("{} → {}", edge["from"].get<std::string>(),
                                edge["to"].get<std::string>()));
    if (edge["n80"] == 0) continue;
    const std::string cell = fmt::format("{} {} {}", edge["heads"][0]["head"].get<std::string>(),
                                         edge["query"].get<int>(), edge["key"].get<int>());
    ASSERT_TRUE(details["reasons"].contains(cell)) << cell;
    ASSERT_TRUE(details["cuts"].contains(cell)) << cell;
    if (heads++ > 3) continue;
    const ParsedFrame live = Changed(
        {{"prompt", kPrompt},
         {"model", 1},
         {"cut", Json::array({Cell(edge["heads"][0]["head"], edge["query"], edge["key"])})}});
    const Json& held = details["cuts"][cell]["last"]["likeliest"][0];
    const Json& asked = live.header["after"]["predictions"].back()["likeliest"][0];
    EXPECT_EQ(held["id"], asked["id"]);
    EXPECT_NEAR(held["probability"].get<double>(), asked["probability"].get<double>(), 1e-4);
  }
  EXPECT_GT(heads, 0u);
}

// What the Features view asks.
TEST_F(TraceAnswersTest, FeaturesOfAPromptCardsAndSearch) {
  const PageQuestion q = ParseQuestion(
      QuestionKind::kFeatures, ToText(Json{{"prompt", kPrompt}, {"strongest", 3}}, -1), *set_);
  const ParsedFrame frame = ParseFrame(FeaturesFrame(*set_, q, RunFeatures(*set_, q, {})));
  EXPECT_TRUE(frame.header["models"][2].is_null());
  const std::size_t L = 2, T = frame.header["tokens"].size();
  ASSERT_EQ(frame.Array("feature.1").size(), L * T * 3);
  // Nothing at position 0, and elsewhere what the trace says fires.
  const TracedPrompt traced = Traced(1);
  for (std::size_t l = 0; l < L; ++l) {
    EXPECT_EQ(frame.Array("active.1")[l * T], 0.0f);
    for (std::size_t t = 1; t < T; ++t) {
      const auto fires = std::count_if(traced.graph.features.begin(), traced.graph.features.end(),
                                       [&](const ActiveFeature& f) {
                                         return f.layer == static_cast<std::int32_t>(l) &&
                                                f.position == static_cast<std::int32_t>(t);
                                       });
      EXPECT_EQ(frame.Array("active.1")[l * T + t], static_cast<float>(fires));
    }
  }
  const auto parse = [&](FeatureQuestionKind kind, const Json& question) {
    return ParseFeatureQuestion(kind, ToText(question, -1), *set_);
  };
  const FeatureQuestion card =
      parse(FeatureQuestionKind::kCard, {{"model", 1}, {"feature", "L1F3"}});
  EXPECT_EQ(CardAnswer(*set_, 1, card.feature)["feature"], "L1F3");
  const FeatureQuestion find = parse(FeatureQuestionKind::kFind, {{"text", "cat"}, {"most", 5}});
  const Json found = FindAnswer(*set_, find);
  EXPECT_GT(found["total"].get<int>(), 0);
  EXPECT_LE(found["features"].size(), 5u);
  const auto refuse = [&](FeatureQuestionKind kind, const Json& question) {
    return ErrorOf([&] { parse(kind, question); });
  };
  EXPECT_THAT(refuse(FeatureQuestionKind::kCard, {{"feature", "L7F3"}}), HasSubstr("L7F3"));
  EXPECT_THAT(refuse(FeatureQuestionKind::kCard, {{"model", 0}}), HasSubstr("no 'feature'"));
  EXPECT_THAT(refuse(FeatureQuestionKind::kCard, {{"model", 2}, {"feature", "L0F0"}}),
              HasSubstr("no features"));
  EXPECT_THAT(refuse(FeatureQuestionKind::kFind, {{"text", std::string(300, 'a')}}),
              HasSubstr("at most 256"));
  EXPECT_THAT(refuse(FeatureQuestionKind::kFind, {{"feature", "L0F0"}}), HasSubstr("not a field"));
}

}  // namespace
}  // namespace clearhead
