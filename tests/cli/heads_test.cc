// SPDX-License-Identifier: MIT
// clearhead grid, heads and scatter, end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/program.h"
#include "cli/small_model.h"
#include "core/safetensors.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

const char* const kPrompt = "The cat sat on the mat, and the other cat sat.";

// A dense and a gated model, and the attention of some other run.
class Heads : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    MakeSmallModel(*folder_ / "dense");
    MakeSmallModel(*folder_ / "sparse", /*gated=*/true);
    // [2,3,4,4]: layer 0 rests on the first token, layer 1 on the token itself; the last is empty.
    std::vector<float> maps;
    for (int h = 0; h < 6; ++h) {
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) maps.push_back(h < 5 && j == (h < 3 ? 0 : i) ? 1.0f : 0.0f);
      }
    }
    WriteSafetensors(File(), std::vector<TensorToWrite>{
                                 {.name = "attn", .shape = {2, 3, 4, 4}, .data = maps.data()}});
    WriteFile(*folder_ / "run.json", R"({"tokens": ["a", " b", " c", " d"]})");
    maps[5] = -1.0f;
    WriteSafetensors(
        *folder_ / "bad.safetensors",
        std::vector<TensorToWrite>{{.name = "attn", .shape = {2, 3, 4, 4}, .data = maps.data()}});
    WriteFile(*folder_ / "book.txt", SmallText());
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string Dense() { return *folder_ / "dense"; }
  static std::string Sparse() { return *folder_ / "sparse"; }
  static std::string File() { return *folder_ / "run.safetensors"; }
  static std::string At(const std::string& name) { return *folder_ / name; }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Heads::folder_ = nullptr;

TEST_F(Heads, GridOfModelsAndFiles) {
  for (const char* name : {"g.png", "g.svg", "g.pdf"}) {
    const Json json = SucceedJson({"grid", Dense(), Sparse(), "--prompt", kPrompt, "--attention",
                                   File(), "--label", "Dense", "--out", At(name)});
    EXPECT_EQ(json["schema"], "clearhead.grid.1");
    ASSERT_EQ(json["panels"].size(), 3u);
    EXPECT_EQ(json["panels"][0]["label"], "Dense");
    EXPECT_EQ(json["panels"][1]["label"], "sparse");
    EXPECT_EQ(json["panels"][2]["label"], "run");
    EXPECT_EQ(json["panels"][0]["heads"].size(), 6u);
    EXPECT_EQ(json["panels"][0]["columns"], 3);  // a row per layer
    EXPECT_EQ(json["panels"][2]["length"], 4);
    EXPECT_GT(std::filesystem::file_size(At(name)), 500u);
  }
}

TEST_F(Heads, GridHeadsInTheGivenOrder) {
  const auto heads = [&](std::vector<std::string> more) {
    std::vector<std::string> command = {"grid", "--attention", File(), "--out", At("o.png")};
    command.insert(command.end(), more.begin(), more.end());
    return SucceedJson(command)["panels"][0]["heads"];
  };
  EXPECT_EQ(heads({"--heads", "1.2,L0H1,a1.h0"}), Json({"L1H2", "L0H1", "L1H0"}));
  EXPECT_EQ(heads({"--heads", "1.2,L0H1,a1.h0", "--order", "layer"}),
            Json({"L0H1", "L1H0", "L1H2"}));
  // The diagonals pick something; the sinks and the empty head do not.
  EXPECT_EQ(heads({"--heads", "top:2"}), Json({"L1H0", "L1H1"}));
  EXPECT_EQ(heads({"--order", "importance"})[0], "L1H0");
  EXPECT_EQ(heads({"--order", "type"}), Json({"L0H0", "L0H1", "L0H2", "L1H0", "L1H1", "L1H2"}));
  WriteFile(At("circuit.json"),
            R"({"heads": [{"head": "L1H1"}, {"head": "L0H2"}, {"head": "L0H0"}], "at_90": 2})");
  EXPECT_EQ(heads({"--heads", "circuit:" + At("circuit.json")}), Json({"L1H1", "L0H2"}));
  // One list for each model.
  const Json two =
      SucceedJson({"grid", "--attention", File(), "--attention", File(), "--heads", "0.1",
                   "--heads", "1.1,1.2", "--columns", "2", "--out", At("o.png")});
  EXPECT_EQ(two["panels"][0]["heads"].size(), 1u);
  EXPECT_EQ(two["panels"][1]["heads"].size(), 2u);
}

TEST_F(Heads, GridRefusals) {
  const std::string out = At("never.png");
  ExpectFailure({"grid", "--out", out}, 2, {"MODEL", "--attention"});
  ExpectFailure({"grid", Dense(), "--out", out}, 2, {"--prompt", "--text"});
  ExpectFailure({"grid", "--attention", File(), "--prompt", "a", "--out", out}, 2, {"MODEL"});
  ExpectFailure({"grid", "--attention", File(), "--out", At("never.jpg")}, 1,
                {".svg, .pdf or .png"});
  ExpectFailure({"grid", "--attention", At("bad.safetensors"), "--out", out}, 1,
                {"layer 0, head 0, query 1, key 1", "-1"});
  ExpectFailure({"grid", "--attention", File(), "--heads", "L9H9", "--out", out}, 1, {"L9H9"});
  ExpectFailure({"grid", "--attention", File(), "--mark", "4:0", "--out", out}, 1,
                {"last query is 3"});
  ExpectFailure({"grid", "--attention", File(), "--mark", "1:2", "--out", out}, 1, {"future"});
  ExpectFailure({"grid", "--attention", File(), "--mark", "x", "--out", out}, 2, {"8:5"});
  ExpectFailure({"grid", "--attention", File(), "--sequence", "1", "--out", out}, 1,
                {"--sequence 1"});
  ExpectFailure({"grid", "--attention", File(), "--heads", "0.1", "--heads", "0.2", "--out", out},
                2, {"--heads", "2 times"});
  ExpectFailure(
      {"grid", Dense(), "--text", At("book.txt"), "--ticks", "--context", "40", "--out", out}, 1,
      {"--ticks", "40 tokens"});
  ExpectFailure({"grid", Dense(), "--prompt", "a", "--gates", "open", "--out", out}, 1, {"gated"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(Heads, TableCsvAndJsonAgree) {
  const Json json = SucceedJson({"heads", "--attention", File()});
  EXPECT_EQ(json["schema"], "clearhead.heads.1");
  const Json& model = json["models"][0];
  ASSERT_EQ(model["heads"].size(), 6u);
  EXPECT_TRUE(model["composition"].is_null());
  EXPECT_EQ(model["heads"][0]["kind"], "first-token");
  EXPECT_EQ(model["heads"][3]["kind"], "self");
  EXPECT_EQ(model["heads"][5]["kind"], "near-empty");
  EXPECT_EQ(model["heads"][5]["empty"], true);
  EXPECT_EQ(model["heads"][0]["first"], 1.0);
  EXPECT_EQ(model["summary"]["sink_heads"], 0.5);
  EXPECT_EQ(model["summary"]["kinds"]["self"], 2);
  EXPECT_NEAR(model["summary"]["diagonal_dominant"].get<double>(), 2.0 / 6, 1e-12);
  EXPECT_FALSE(json.contains("comparison"));

  const std::string csv = Succeed({"heads", "--attention", File(), "--csv"}).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  EXPECT_TRUE(csv.starts_with("model,head,name,kind,score,margin"));
  const std::string header = csv.substr(0, csv.find('\n'));
  EXPECT_THAT(header, HasSubstr("strong_off_diagonal"));
  const std::string table = Succeed({"heads", "--attention", File(), "--explain"}).out;
  EXPECT_THAT(table, HasSubstr("L1H2"));
  EXPECT_THAT(table, HasSubstr("Rests on the first token"));
  EXPECT_THAT(table, HasSubstr("3 first-token, 2 self, 1 near-empty"));
}

// A model of random weights on a text without an order: nothing that its names say is its own.
TEST_F(Heads, Controls) {
  const std::vector<std::string> arguments = {"heads",     Dense(), "--text",    At("book.txt"),
                                              "--context", "20",    "--controls"};
  const Json heads = SucceedJson(arguments)["models"][0]["heads"];
  ASSERT_FALSE(heads.empty());
  for (const Json& head : heads) {
    const Json& control = head["control"];
    for (const char* name : {"shuffled", "random_mean", "random_most"}) {
      EXPECT_GE(control[name].get<double>(), 0.0);
      EXPECT_LE(control[name].get<double>(), 1.0);
    }
    EXPECT_LE(control["random_mean"], control["random_most"]);
  }
  EXPECT_THAT(Succeed(arguments).out, HasSubstr("random, most"));
  ExpectFailure({"heads", "--attention", File(), "--controls"}, 2, {"--controls", "is a file"});
}

TEST_F(Heads, SortedAndFiltered) {
  const Json sorted =
      SucceedJson({"heads", "--attention", File(), "--sort", "self"})["models"][0]["heads"];
  EXPECT_EQ(sorted[0]["head"], "L1H0");
  const Json self =
      SucceedJson({"heads", "--attention", File(), "--kind", "self", "--kind", "near-empty"});
  EXPECT_EQ(self["models"][0]["heads"].size(), 3u);
  EXPECT_EQ(self["models"][0]["summary"]["kinds"]["first-token"], 3);  // of all heads
  ExpectFailure({"heads", "--attention", File(), "--kind", "foo"}, 2, {"foo", "first-token, self"});
  ExpectFailure({"heads", "--attention", File(), "--sort", "foo"}, 2, {"foo"});
  ExpectFailure({"heads", "--attention", File(), "--csv", "--json"}, 2, {"--csv"});
  ExpectFailure({"heads", Dense(), Dense(), Dense(), "--prompt", "a"}, 2, {"at most 2"});
}

TEST_F(Heads, TwoModelsOnAText) {
  const Json json =
      SucceedJson({"heads", Dense(), Sparse(), "--text", At("book.txt"), "--context", "16"});
  ASSERT_EQ(json["models"].size(), 2u);
  const Json& dense = json["models"][0];
  EXPECT_GT(dense["sequences"], 10);
  EXPECT_EQ(dense["longest"], 16);
  EXPECT_EQ(dense["summary"]["edge_fraction"], 1.0);
  EXPECT_LT(json["models"][1]["summary"]["edge_fraction"], 1.0);
  // Composition is a matter of weights, which the two share.
  EXPECT_EQ(dense["composition"], json["models"][1]["composition"]);
  EXPECT_EQ(dense["composition"]["Q"]["pairs"], 9);
  const Json& change = json["comparison"];
  EXPECT_EQ(change["paired"], true);
  EXPECT_GT(change["connections_removed_percent"], 0);
  EXPECT_EQ(change["heads"].size(), 6u);
  EXPECT_EQ(change["composition"]["K"]["strong_before"],
            change["composition"]["K"]["strong_after"]);
  EXPECT_GT(change["open_edges_per_query"]["before"], change["open_edges_per_query"]["after"]);
  EXPECT_DOUBLE_EQ(change["open_edges_per_query"]["p"].get<double>(), 2 / 64.0);
  EXPECT_TRUE(change["heads"][0]["self"]["p"].is_number());
  const std::string text =
      Succeed({"heads", Dense(), Sparse(), "--text", At("book.txt"), "--context", "16"}).out;
  EXPECT_THAT(text, HasSubstr("connections removed"));
  EXPECT_THAT(text, HasSubstr("sinks eliminated"));
  EXPECT_THAT(text, HasSubstr("compose strongly: Q "));
  // The limit counts tokens, and one prompt has no p-value for a head.
  EXPECT_EQ(SucceedJson({"heads", Dense(), "--text", At("book.txt"), "--context", "16", "--tokens",
                         "37"})["models"][0]["tokens"],
            37);
  const Json prompt = SucceedJson({"heads", Dense(), Sparse(), "--prompt", kPrompt});
  EXPECT_TRUE(prompt["comparison"]["heads"][0]["self"]["p"].is_null());
}

TEST_F(Heads, ScatterAndCorrelations) {
  for (const char* name : {"s.png", "s.svg", "s.pdf"}) {
    const Json json = SucceedJson({"scatter", Dense(), Sparse(), "--prompt", kPrompt, "--heads",
                                   "0.0,0.1,1.2", "--out", At(name)});
    EXPECT_EQ(json["schema"], "clearhead.scatter.1");
    ASSERT_EQ(json["sections"].size(), 2u);
    EXPECT_EQ(json["sections"][0]["cells"].size(), 3u);
    const Json& section = json["sections"][0];
    EXPECT_EQ(section["heads"], Json({"L0H0", "L0H1", "L1H2"}));
    // Few pairs come as they are; the largest of them is the end of the axis.
    ASSERT_EQ(section["points"].size(), 3u);
    ASSERT_EQ(section["points"][1].size(), section["pairs"].get<std::size_t>());
    const auto points = section["points"][1].get<std::vector<double>>();
    EXPECT_NEAR(*std::max_element(points.begin(), points.end()),
                section["largest"][1].get<double>(), 1e-6);
    EXPECT_FALSE(section["cells"][0].contains("counts"));
  }
  const Json all = SucceedJson({"scatter", "--attention", File(), "--all", "--out", At("c.svg")});
  const Json& section = all["sections"][0];
  EXPECT_EQ(all["schema"], "clearhead.correlation.1");
  EXPECT_EQ(section["defined_heads"], 5);
  EXPECT_EQ(section["heads"][5], "L1H2");     // empty
  EXPECT_TRUE(section["r"][5][5].is_null());  // not 0, not 1
  EXPECT_TRUE(section["r"][0][5].is_null());
  EXPECT_NEAR(section["strongest"][0]["r"].get<double>(), 1.0, 1e-6);
  const std::string text =
      Succeed({"scatter", "--attention", File(), "--all", "--out", At("c.svg")}).out;
  EXPECT_THAT(text, HasSubstr("undefined (constant or empty heads): L1H2"));
  EXPECT_THAT(text, HasSubstr("median |r|"));
  EXPECT_THAT(
      Succeed({"scatter", "--attention", File(), "--heads", "0.0,1.2", "--out", At("c.svg")}).out,
      HasSubstr("undefined"));
  ExpectFailure({"scatter", Dense(), "--ids", "1", "--out", At("never.png")}, 1, {"one token"});
  EXPECT_FALSE(std::filesystem::exists(At("never.png")));
}

}  // namespace
}  // namespace clearhead
