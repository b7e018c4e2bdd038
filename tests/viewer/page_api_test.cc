// SPDX-License-Identifier: MIT
// The page's answers against plain runs of the models.
#include "viewer/page_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/small_model.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "viewer/ablation_runs.h"
#include "viewer/frame.h"
#include "viewer/page_report.h"
#include "viewer/prompt_run.h"

namespace clearhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PageApiTest : public ::testing::Test {
 protected:
  PageApiTest() {
    MakeSmallModel(folder_ / "dense");
    MakeSmallModel(folder_ / "gated", /*gated=*/true);
    set_ = LoadModelSet({{folder_ / "dense", "dense"}, {folder_ / "gated", "gated"}});
  }

  ParsedFrame Run(const Json& question) const {
    const std::string body = ToText(question, -1);
    return ParseFrame(RunFrame(*set_, ParseQuestion(QuestionKind::kRun, body, *set_), {}));
  }
  std::string Refusal(QuestionKind kind, const std::string& body) const {
    return ErrorOf([&] { ParseQuestion(kind, body, *set_); });
  }

  TemporaryFolder folder_;
  std::optional<ModelSet> set_;
};

constexpr const char* kPrompt = "The cat sat on the other mat, naïve cat";

TEST_F(PageApiTest, MapsLossesAndPredictionsAreThoseOfAPlainRun) {
  const ParsedFrame frame = Run({{"prompt", kPrompt}});
  const std::vector<std::int32_t> ids = set_->tokenizer.Encode(kPrompt);
  const auto T = static_cast<std::int64_t>(ids.size());
  EXPECT_EQ(frame.header["ids"].get<std::vector<std::int32_t>>(), ids);
  ASSERT_EQ(frame.header["tokens"].size(), ids.size());
  EXPECT_EQ(frame.header["tokens"][0], "The");
  EXPECT_EQ(frame.header["tokens_per_cell"], 1);
  for (std::size_t m = 0; m < 2; ++m) {
    const Model& model = set_->models[m].model;
    const ModelRun plain =
        RunModel(model, ids, 1, {.taps = MatchTaps("blocks.*.attn.hook_pattern", model.config)});
    const std::span<const float> maps = frame.Array(fmt::format("maps.{}", m));
    ASSERT_EQ(static_cast<std::int64_t>(maps.size()),
              model.config.layers * model.config.heads * T * T);
    std::vector<float> expected;
    for (const auto& [id, tensor] : plain.taps) {
      expected.insert(expected.end(), tensor.values.begin(), tensor.values.end());
    }
    for (std::size_t i = 0; i < maps.size(); ++i) ASSERT_NEAR(maps[i], expected[i], 1e-6) << i;

    const Json& side = frame.header["models"][m];
    EXPECT_NEAR(side["loss"].get<double>(), plain.loss, 1e-5);
    EXPECT_EQ(side["heads"].size(), 6u);
    ASSERT_EQ(side["predictions"].size(), ids.size());
    EXPECT_TRUE(side["predictions"].back()["loss"].is_null());
    const Json& last = side["predictions"].back()["likeliest"];
    ASSERT_EQ(last.size(), 10u);
    const std::int64_t V = model.config.vocabulary;
    const float* row = plain.logits.data() + (T - 1) * V;
    EXPECT_EQ(last[0]["id"].get<std::int64_t>(), std::max_element(row, row + V) - row);
    double sum = 0.0;
    for (std::int64_t v = 0; v < V; ++v) sum += std::exp(double{row[v]});
    const auto best = last[0]["id"].get<std::int64_t>();
    EXPECT_NEAR(last[0]["probability"].get<double>(), std::exp(double{row[best]}) / sum, 1e-6);
  }
}

TEST_F(PageApiTest, AnAblatedHeadIsZeroInThatModelOnly) {
  const ParsedFrame before = Run({{"prompt", kPrompt}});
  const ParsedFrame after =
      Run({{"prompt", kPrompt}, {"ablate", {Json::array(), {"L0H1", "l1h2", "L0H1"}}}});
  EXPECT_EQ(before.header["models"][0]["predictions"], after.header["models"][0]["predictions"]);
  EXPECT_NE(before.header["models"][1]["predictions"], after.header["models"][1]["predictions"]);
  EXPECT_EQ(after.header["models"][1]["ablated"], Json({"L0H1", "L1H2"}));
  const std::vector<std::int32_t> ids = set_->tokenizer.Encode(kPrompt);
  const ModelRun plain = RunModel(set_->models[1].model, ids, 1,
                                  {.interventions = {{.tap = {Tap::kZ, 0}, .heads = {1}},
                                                     {.tap = {Tap::kZ, 1}, .heads = {2}}}});
  EXPECT_NEAR(after.header["models"][1]["loss"].get<double>(), plain.loss, 1e-5);
  // The first layer's maps come before any change, the second layer's after.
  const auto maps = [](const ParsedFrame& frame) { return frame.Array("maps.1"); };
  const std::size_t layer = maps(before).size() / 2;
  EXPECT_TRUE(std::equal(maps(before).begin(), maps(before).begin() + layer, maps(after).begin()));
  EXPECT_FALSE(
      std::equal(maps(before).begin() + layer, maps(before).end(), maps(after).begin() + layer));
}

TEST_F(PageApiTest, LongPromptsAreReducedByMaximum) {
  const ParsedFrame whole = Run({{"prompt", kPrompt}});
  const ParsedFrame reduced = Run({{"prompt", kPrompt}, {"cells", 5}});
  const auto T = static_cast<std::int64_t>(whole.header["ids"].size());
  const auto block = reduced.header["tokens_per_cell"].get<std::int64_t>();
  EXPECT_EQ(block, (T + 4) / 5);
  const auto n = reduced.header["arrays"]["maps.0"]["shape"][2].get<std::int64_t>();
  const std::span<const float> maps = whole.Array("maps.0"), cells = reduced.Array("maps.0");
  for (std::int64_t h = 0; h < 6; ++h) {
    for (std::int64_t y = 0; y < n; ++y) {
      for (std::int64_t x = 0; x < n; ++x) {
        float largest = 0.0f;
        for (std::int64_t i = y * block; i < std::min(T, (y + 1) * block); ++i) {
          for (std::int64_t j = x * block; j < std::min(T, (x + 1) * block); ++j) {
            largest = std::max(largest, maps[static_cast<std::size_t>((h * T + i) * T + j)]);
          }
        }
        ASSERT_EQ(cells[static_cast<std::size_t>((h * n + y) * n + x)], largest);
      }
    }
  }
  // Names and numbers are of the whole maps.
  EXPECT_EQ(whole.header["models"][1]["heads"], reduced.header["models"][1]["heads"]);
}

TEST_F(PageApiTest, HeadAndTokenFramesAreCutsOfTheWholeMaps) {
  const ParsedFrame whole = Run({{"prompt", kPrompt}});
  const std::size_t T = whole.header["ids"].size();
  const Json head = {{"prompt", kPrompt}, {"head", "L1H0"}};
  const ParsedFrame one =
      ParseFrame(HeadFrame(*set_, ParseQuestion(QuestionKind::kHead, ToText(head, -1), *set_), {}));
  const Json token = {{"prompt", kPrompt}, {"position", 3}};
  const ParsedFrame rows = ParseFrame(
      TokenFrame(*set_, ParseQuestion(QuestionKind::kToken, ToText(token, -1), *set_), {}));
  for (const char* m : {"0", "1"}) {
    const std::span<const float> maps = whole.Array(std::string("maps.") + m);
    const std::span<const float> map = one.Array(std::string("map.") + m);
    EXPECT_TRUE(std::equal(map.begin(), map.end(), maps.begin() + 3 * T * T));
    const std::span<const float> reads = rows.Array(std::string("reads.") + m);
    const std::span<const float> read_by = rows.Array(std::string("read_by.") + m);
    for (std::size_t h = 0; h < 6; ++h) {
      for (std::size_t i = 0; i < T; ++i) {
        ASSERT_EQ(reads[h * T + i], maps[(h * T + 3) * T + i]);
        ASSERT_EQ(read_by[h * T + i], maps[(h * T + i) * T + 3]);
      }
    }
  }
}

TEST_F(PageApiTest, OpenGatesChangeOnlyTheGatedModel) {
  const ParsedFrame closed = Run({{"prompt", kPrompt}});
  const ParsedFrame open = Run({{"prompt", kPrompt}, {"open_gates", true}});
  EXPECT_EQ(closed.header["models"][0], open.header["models"][0]);
  EXPECT_LT(closed.header["models"][1]["edge_fraction"].get<double>(), 1.0);
  EXPECT_EQ(open.header["models"][1]["edge_fraction"].get<double>(), 1.0);
}

TEST_F(PageApiTest, OneTokenHasNoLoss) {
  const ParsedFrame frame = Run({{"prompt", "The"}});
  EXPECT_EQ(frame.header["ids"].size(), 1u);
  EXPECT_TRUE(frame.header["models"][0]["loss"].is_null());
  EXPECT_EQ(frame.Array("maps.0").size(), 6u);
}

TEST_F(PageApiTest, WhatCannotBeAnsweredIsRefusedInOneLine) {
  const auto run = [&](const std::string& body) { return Refusal(QuestionKind::kRun, body); };
  EXPECT_THAT(run(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(run("[1]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(run("{}"), HasSubstr("no 'prompt'"));
  EXPECT_THAT(run(R"({"prompt":7})"), HasSubstr("must be a text"));
  EXPECT_THAT(run(R"({"prompt":""})"), HasSubstr("empty"));
  EXPECT_THAT(run(R"({"prompt":"a","path":"/etc"})"), HasSubstr("'path' is not a field"));
  EXPECT_THAT(run(R"({"prompt":"a","cells":0})"), HasSubstr("from 1 to 256"));
  EXPECT_THAT(run(R"({"prompt":"a","cells":1e9})"), HasSubstr("from 1 to 256"));
  EXPECT_THAT(run(R"({"prompt":"a","ablate":[["L2H0"],[]]})"), HasSubstr("no head of dense"));
  EXPECT_THAT(run(R"({"prompt":"a","ablate":[["L0H0"]]})"), HasSubstr("one list for each model"));
  EXPECT_THAT(run(R"({"prompt":"a","ablate":[[["L0H0"]],[]]})"), HasSubstr("must be a text"));
  EXPECT_THAT(run(R"({"prompt":"a","head":"L0H0"})"), HasSubstr("not a field"));
  EXPECT_THAT(run(R"({"prompt":")" + std::string(70000, 'a') + "\"}"), HasSubstr("bytes"));
  EXPECT_THAT(run(R"({"prompt":")" + std::string(2000, 'q') + "\"}"), HasSubstr("models take 48"));
  EXPECT_THAT(Refusal(QuestionKind::kHead, R"({"prompt":"a"})"), HasSubstr("no 'head'"));
  EXPECT_THAT(Refusal(QuestionKind::kToken, R"({"prompt":"a","position":1})"),
              HasSubstr("from 0 to 0"));
}

TEST_F(PageApiTest, MapsBeyondTheAnswersSizeAreRefused) {
  EXPECT_EQ(MostCells(*set_, 48), 48);
  ModelSet many = *set_;  // 2 models of 6 heads: 12 n^2 floats
  for (int i = 0; i < 40; ++i) many.models.push_back(many.models[0]);
  // 42 models of 6 heads: 252 n^2 <= 5e6, so n <= 140.
  EXPECT_EQ(MostCells(many, 200), 140);
  EXPECT_EQ(MostCells(many, 100), 100);
}

// Only parsed, so that nothing runs: the models' weights have no such positions.
TEST_F(PageApiTest, DetailsBeyondTheAnswersSizeAreRefused) {
  ModelSet longer = *set_;
  for (ViewedModel& viewed : longer.models) viewed.model.config.positions = 1 << 16;
  const auto body = [](std::size_t tokens, const char* rest) {
    std::string prompt;
    while (prompt.size() < tokens) prompt += "q7";  // letters and digits never merge
    return R"({"prompt":")" + prompt + "\"," + rest + "}";
  };
  const auto refusal = [&](QuestionKind kind, const std::string& question) {
    return ErrorOf([&] { ParseQuestion(kind, question, longer); });
  };
  // Two maps of n x n <= 5e6 values: n <= 1581.
  const char* head = R"("head":"L0H0")";
  EXPECT_EQ(ParseQuestion(QuestionKind::kHead, body(1580, head), longer).ids.size(), 1580u);
  EXPECT_THAT(refusal(QuestionKind::kHead, body(1582, head)),
              AllOf(HasSubstr("1582 tokens"), HasSubstr("at most 1581")));
  // A head that one of them does not have: one map, n <= 2236.
  longer.models[1].model.config.layers = 1;
  const char* deeper = R"("head":"L1H0")";
  EXPECT_EQ(ParseQuestion(QuestionKind::kHead, body(2236, deeper), longer).ids.size(), 2236u);
  EXPECT_THAT(refusal(QuestionKind::kHead, body(2238, deeper)), HasSubstr("at most 2236"));
  // Rows and columns of one position: 2 x (6 + 3) x n values fit for every prompt; those of many
  // models do not: 2 x (9 + 40 x 6) x n <= 5e6, n <= 10040.
  const char* position = R"("position":0)";
  EXPECT_EQ(ParseQuestion(QuestionKind::kToken, body(20000, position), longer).ids.size(), 20000u);
  for (int i = 0; i < 40; ++i) longer.models.push_back(longer.models[0]);
  EXPECT_THAT(refusal(QuestionKind::kToken, body(20000, position)), HasSubstr("at most 10040"));
}

TEST_F(PageApiTest, ACancelledRunStops) {
  const PageQuestion q = ParseQuestion(QuestionKind::kRun, R"({"prompt":"The cat"})", *set_);
  int asked = 0;
  EXPECT_THROW(RunFrame(*set_, q, [&] { return ++asked == 3; }), Cancelled);
  EXPECT_EQ(asked, 3);
}

TEST_F(PageApiTest, OverviewNamesModelsAndExamplesTheTokenizerKnows) {
  const Json overview = Overview(*set_, {});
  EXPECT_EQ(overview["models"][0]["attention"], "softmax");
  EXPECT_EQ(overview["models"][1]["attention"], "gated");
  EXPECT_EQ(overview["longest"], 48);
  EXPECT_FALSE(overview["tasks"].empty());
  EXPECT_EQ(ExamplePrompts(*set_).size(), overview["tasks"].size());
  for (const Json& task : overview["tasks"]) EXPECT_FALSE(task["examples"].empty());
  EXPECT_EQ(ToText(overview).find(folder_.path().string()), std::string::npos);
}

TEST_F(PageApiTest, ResultsAreFoundByTheirSchema) {
  const auto results = folder_ / "results";
  std::filesystem::create_directories(results / "copy");
  EXPECT_THAT(ErrorOf([&] { ReadResults(results); }), HasSubstr("has no result"));
  EXPECT_THAT(ErrorOf([&] { ReadResults(folder_ / "absent"); }), HasSubstr("not a folder"));
  WriteFile(results / "copy" / "circuit.json", R"({"schema":"clearhead.circuit/1","heads":[]})");
  WriteFile(results / "scatter.json", R"({"schema":"clearhead.scatter.1","out":"/home/me/x.pdf"})");
  WriteFile(results / "other.json", R"({"schema":"other"})");
  WriteFile(results / "broken.json", "{");
  const std::vector<ResultFile> files = ReadResults(results);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "copy/circuit.json");
  EXPECT_EQ(files[1].schema, "clearhead.scatter.1");
  EXPECT_EQ(ToText(files[1].json).find("home"), std::string::npos);
}

TEST_F(PageApiTest, APairOfCircuitsIsListedOnce) {
  const auto results = folder_ / "pair";
  std::filesystem::create_directories(results);
  const std::string a = R"({"schema":"clearhead.circuit/1","model":"a","heads":[]})";
  const std::string b = R"({"schema":"clearhead.circuit/1","model":"b","heads":[]})";
  WriteFile(results / "circuit-a.json", a);
  WriteFile(results / "circuit-b.json", b);
  WriteFile(results / "other.json", R"({"schema":"clearhead.circuit/1","model":"c","heads":[]})");
  EXPECT_EQ(ReadResults(results).size(), 3u);
  WriteFile(results / "circuit.json",
            fmt::format(R"({{"schema":"clearhead.circuits/1","models":[{},{}]}})", a, b));
  const std::vector<ResultFile> files = ReadResults(results);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "circuit.json");
  EXPECT_EQ(files[1].name, "other.json");
}

TEST_F(PageApiTest, ReportsHoldThePredictionsOfEverySetOfHeadsOff) {
  const std::vector<ResultFile> results = {{"pair.json", "clearhead.circuits/1",
                                            ParseJson(R"({"models": [
          {"layers": 2, "heads_per_layer": 3, "at_90": 2, "heads": [{"head": "L1H2"}, {"head": "L0H1"}]},
          {"layers": 2, "heads_per_layer": 4, "at_90": 1, "heads": [{"head": "L1H2"}]},
          7, {"layers": 2, "heads_per_layer": 3, "at_90": -1, "heads": [3]}]})",
                                                      "test")}};
  const auto sets = AblationSets(set_->models[1], results);
  ASSERT_EQ(sets.size(), 6u + 2u + 1u + 1u);  // heads, layers, all, all but the circuit
  EXPECT_EQ(sets[4], (std::vector<HeadId>{{1, 1}}));
  EXPECT_EQ(sets[6], (std::vector<HeadId>{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(sets[8].size(), 6u);
  EXPECT_EQ(sets[9], (std::vector<HeadId>{{0, 0}, {0, 2}, {1, 0}, {1, 1}}));

  int ran = 0;
  const ParsedFrame held = ParseFrame(AblationFrame(*set_, kPrompt, results, [&] { ++ran; }));
  EXPECT_EQ(ran, 20);
  const ParsedFrame run =
      Run({{"prompt", kPrompt}, {"ablate", {Json::array(), {"L0H0", "L0H2", "L1H0", "L1H1"}}}});
  const Json& predictions = run.header["models"][1]["predictions"];
  const std::size_t T = predictions.size(), K = static_cast<std::size_t>(kAblationLikeliest);
  EXPECT_EQ(held.header["positions"].get<std::size_t>(), T);
  EXPECT_EQ(held.header["models"][1]["sets"][9], Json({"L0H0", "L0H2", "L1H0", "L1H1"}));
  for (std::size_t t = 0; t < T; ++t) {
    if (t + 1 < T) {
      EXPECT_NEAR(held.Array("losses.1")[9 * (T - 1) + t], predictions[t]["loss"].get<double>(),
                  1e-5);
    }
    for (std::size_t k = 0; k < K; ++k) {
      const Json& likely = predictions[t]["likeliest"][k];
      const std::size_t at = (9 * T + t) * K + k;
      EXPECT_EQ(held.Array("ids.1")[at], likely["id"].get<float>());
      EXPECT_NEAR(held.Array("probabilities.1")[at], likely["probability"].get<double>(), 1e-6);
      EXPECT_EQ(held.header["tokens"][likely["id"].dump()], likely["token"]);
    }
  }
  // One token: nothing to lose, something to expect.
  const ParsedFrame one = ParseFrame(AblationFrame(*set_, "The", {}, [] {}));
  EXPECT_TRUE(one.Array("losses.0").empty());
  EXPECT_EQ(one.Array("ids.0").size(), 9 * K);
}

TEST(FrameTest, ComesBack) {
  const std::vector<float> a = {1.5f, -2.0f, 3.0f};
  const std::vector<FrameArray> arrays = {{"a", {3, 1}, a}, {"none", {0}, {}}};
  const std::string bytes = MakeFrame({{"x", "naïve"}}, arrays);
  EXPECT_EQ((bytes.size() - 12) % 4, 0u);
  const ParsedFrame frame = ParseFrame(bytes);
  EXPECT_EQ(frame.header["x"], "naïve");
  EXPECT_EQ(std::vector<float>(frame.Array("a").begin(), frame.Array("a").end()), a);
  EXPECT_THROW(ParseFrame(bytes.substr(0, 7)), Error);
  EXPECT_THROW(ParseFrame(bytes.substr(0, bytes.size() - 2)), Error);
  EXPECT_THROW(ParseFrame("CHF1\xff\xff\xff\x7f{}"), Error);
}

TEST(ModelSetTest, RefusesModelsWithDifferentTokens) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "a");
  MakeSmallModel(folder / "b");
  const std::string text = "Quite other words, zebra zebra zebra zebra.";
  const std::vector<std::string_view> texts = {text};
  TrainBpe(texts, {.vocabulary_size = 260}).Save(folder / "b");
  EXPECT_THAT(ErrorOf([&] {
                LoadModelSet({{folder / "a", "a"}, {folder / "b", "b"}});
              }),
              HasSubstr("different vocabularies"));
}

}  // namespace
}  // namespace clearhead
