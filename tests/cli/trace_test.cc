// SPDX-License-Identifier: MIT
// clearhead trace and carriers, end to end, on the golden models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/graph_schema.h"
#include "cli/program.h"
#include "features/golden_features.h"
#include "model/model.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

std::string Joined(const Json& numbers) {
  std::string text;
  for (const Json& n : numbers) text += (text.empty() ? "" : ",") + ToText(n, -1);
  return text;
}

class TraceCommand : public testing::TestWithParam<std::string> {
 protected:
  TraceCommand() : golden(ReadFeatureCase(GetParam())) {}

  std::vector<std::string> Words(const std::string& command) const {
    std::vector<std::string> words = {command, golden.model.string()};
    if (command == "carriers") words.emplace_back("--features");
    words.insert(words.end(),
                 {GoldenTranscoder(golden.name).string(), "--ids", Joined(golden.json["p0"]["ids"]),
                  "--target-ids", Joined(golden.json["graph"]["logits"])});
    return words;
  }

  FeatureCase golden;
  TemporaryFolder folder;
};
INSTANTIATE_TEST_SUITE_P(Cases, TraceCommand, testing::ValuesIn(FeatureCaseNames()),
                         [](const auto& info) { return PlainName(info.param); });

TEST_P(TraceCommand, WritesTheGoldenMatrix) {
  std::vector<std::string> words = Words("trace");
  words.insert(words.end(), {"--all-features", "--matrix", folder / "m.safetensors"});
  const Json json = SucceedJson(words);
  EXPECT_EQ(json["schema"], "clearhead.trace.1");
  EXPECT_NEAR(json["scores"]["replacement"].get<double>(),
              golden.json["graph"]["replacement"].get<double>(), 1e-5);
  EXPECT_LE(json["sums"]["largest_difference"].get<double>(), 2e-5);
  const auto tensors = ReadGolden(folder / "m.safetensors");
  for (const char* name : {"edges", "targets", "influence", "edge_scores"}) {
    EXPECT_LE(
        MaxRelativeDifference(tensors.at(name).values, golden.Values(std::string("graph.") + name)),
        1e-5)
        << name;
  }
  const Json names = ReadJsonFile(folder / "m.json");
  EXPECT_EQ(names["columns"].size(), static_cast<std::size_t>(tensors.at("edges").shape[1]));
  EXPECT_EQ(names["columns"].back(), "bias");
  EXPECT_EQ(names["rows"].size(), static_cast<std::size_t>(tensors.at("edges").shape[0]));
  const auto& p = golden.prompts[0].features;
  EXPECT_EQ(names["columns"][0], fmt::format("L{}F{}@{}", p[0], p[2], p[1]));
}

TEST_P(TraceCommand, WritesAGraphForThePages) {
  for (const bool compatible : {false, true}) {
    std::vector<std::string> words = Words("trace");
    words.insert(words.end(), {"--out", folder / "g"});
    if (compatible) words.emplace_back("--compatible");
    const std::string text = Succeed(words).out;
    EXPECT_THAT(text, HasSubstr("rows add up"));
    const Json graph = ReadJsonFile(folder / "g/graph.json");
    ExpectPublishedSchema(graph, LoadModel(golden.model).config.layers);
    std::set<std::string> kinds;
    for (const Json& node : graph["nodes"])
      kinds.insert(node["node_id"].get<std::string>().substr(0, 2));
    EXPECT_EQ(kinds.contains("P_") || kinds.contains("B_"), !compatible);
    const Json& counts = golden.json[compatible ? "ct" : "graph"];
    EXPECT_EQ(graph["links"].size(), counts["edges_kept"].get<std::size_t>());
    EXPECT_EQ(graph["nodes"].size(), counts["nodes_kept"].get<std::size_t>());
    EXPECT_EQ(ReadJsonFile(folder / "g/graph-metadata.json")["graphs"].size(), 1u);
  }
  // Edited groups come back.
  std::vector<std::string> words = Words("trace");
  words.insert(words.end(), {"--groups", folder / "g/groups.json", "--json"});
  EXPECT_GT(ParseJson(Succeed(words).out, "stdout")["groups"].size(), 0u);
}

TEST_P(TraceCommand, CarriersSplitTheGoldenEdges) {
  for (std::size_t e = 0; e < golden.json["splits"].size(); e += 3) {
    const Json& expected = golden.json["splits"][e];
    const auto& f = golden.prompts[0].features;
    const auto n = static_cast<std::int64_t>(f.size() / 3);
    const auto source = expected["source"].get<std::int64_t>(),
               target = expected["target"].get<std::int64_t>();
    const auto feature = [&](std::int64_t i) {
      return fmt::format("L{}F{}", f[3 * i], f[3 * i + 2]);
    };
    if (source >= n && expected["source_layer"] != -1) continue;  // an error
    std::vector<std::string> words = Words("carriers");
    words.insert(words.end(), {"--key", ToText(expected["source_position"], -1), "--query",
                               ToText(expected["target_position"], -1), "--random", "2"});
    words.insert(words.end(), {"--from", source < n ? feature(source) : "token"});
    words.insert(words.end(), {"--to", target < n ? feature(target) : "logit"});
    const Json json = SucceedJson(words)["models"][0];
    EXPECT_NEAR(json["edge"].get<double>(), expected["edge"].get<double>(), 1e-5);
    EXPECT_NEAR(json["direct"].get<double>(), expected["direct"].get<double>(), 1e-5);
    EXPECT_NEAR(json["multi_hop"].get<double>(), expected["multi_hop"].get<double>(), 1e-5);
    EXPECT_EQ(json["n80"], expected["n80_one_hop"]);
    EXPECT_EQ(json["n80_heads"], expected["n80_heads"]);
    const std::vector<float>& later = golden.Values(fmt::format("split{}.later", e));
    for (std::size_t l = 0; l < later.size(); ++l) {
      EXPECT_NEAR(json["layers"][l]["later"].get<double>(), later[l], 1e-5);
    }
  }
}

TEST(TraceRefusals, OneClearLine) {
  const std::string model = FeatureGoldens() / "models/dense";
  const std::string features = GoldenTranscoder("dense-clt-relu");
  const std::string other = GoldenTranscoder("gated-clt-forge");
  ExpectFailure({"trace", model, features, "--ids", "1,2,3"}, 2, {"--out", "--matrix"});
  ExpectFailure({"trace", model, other, "--ids", "1,2,3", "--json"}, 1,
                {"3 layers of width 32", "2 of width 16"});
  ExpectFailure({"trace", model, features, "--ids", "1,2,3", "--target-ids", "61", "--json"}, 1,
                {"token 61", "vocabulary of 61"});
  ExpectFailure({"trace", model, features, "--ids", "1,2,3", "--target", " small", "--json"}, 1,
                {"no tokenizer"});
  ExpectFailure({"carriers", model, "--ids", "1,2,3", "--key", "3"}, 1, {"--key 3", "3 tokens"});
  ExpectFailure({"carriers", model, "--ids", "1,2,3"}, 2, {"--key"});
  ExpectFailure({"carriers", model, "--features", features, "--ids", "1,2,3", "--key", "1",
                 "--from", "L0F999"},
                1, {"L0F999", "not active at position 1"});
  ExpectFailure({"carriers", model, "--features", features, "--ids", "1,2,3", "--key", "1",
                 "--from", "house"},
                1, {"'house' names no node"});
  ExpectFailure({"carriers", model, model, "--features", features, "--ids", "1,2", "--key", "0"}, 2,
                {"2 models, 1 folders"});
}

TEST(Carriers, AskAnyModelWithoutFeatures) {
  const Json json = SucceedJson({"carriers", (FeatureGoldens() / "models/gated").string(), "--ids",
                                 "3,8,2,11,5", "--key", "2", "--from", "token"});
  const Json& model = json["models"][0];
  EXPECT_EQ(model["counts"].size(), 3u);
  EXPECT_EQ(model["layers"].size(), 3u);
  EXPECT_EQ(model["knock_out"].size(), 3u);
}

}  // namespace
}  // namespace clearhead
