// SPDX-License-Identifier: MIT
// clearhead compare, end to end.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "cli/program.h"
#include "cli/small_model.h"
#include "support/golden.h"

namespace clearhead {
namespace {

class CompareCommand : public testing::Test {
 protected:
  CompareCommand()
      : dense_(MakeSmallModel(folder_ / "dense")), gated_(MakeSmallModel(folder_ / "gated", true)) {
    WriteFile(folder_ / "text", SmallText());
  }
  std::string text() const { return folder_ / "text"; }
  std::vector<std::string> Command(const std::string& a, const std::string& b,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {"compare", folder_ / a, folder_ / b, "--text", text()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  TemporaryFolder folder_;
  Model dense_, gated_;
};

TEST_F(CompareCommand, SidesAreWhatEvalPrints) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--context", "31", "--tokens", "200"}}) {
    const Json json = SucceedJson(Command("dense", "gated", more));
    for (const auto& [side, name] : {std::pair{"a", "dense"}, std::pair{"b", "gated"}}) {
      std::vector<std::string> eval = {"eval", folder_ / name, "--text", text()};
      eval.insert(eval.end(), more.begin(), more.end());
      const Json alone = SucceedJson(eval);
      EXPECT_EQ(json[side]["model"], (folder_ / name).string());
      EXPECT_EQ(json[side]["loss"], alone["loss"]);
      EXPECT_EQ(json[side]["perplexity"], alone["perplexity"]);
      EXPECT_EQ(json["tokens"], alone["tokens"]);
      EXPECT_EQ(json["windows"], alone["windows"]);
      EXPECT_EQ(json["context"], alone["context"]);
      for (const char* field : {"open_edges", "causal_edges", "edge_fraction", "edges_per_query"}) {
        ASSERT_EQ(json[side].contains(field), alone.contains(field)) << field;
        if (alone.contains(field)) {
          EXPECT_EQ(json[side][field], alone[field]) << field;
        }
      }
    }
    EXPECT_TRUE(json["b"].contains("open_edges"));
    const double difference = json["loss_difference"].get<double>();
    EXPECT_NEAR(difference, json["b"]["loss"].get<double>() - json["a"]["loss"].get<double>(),
                1e-12);
    EXPECT_LT(json["loss_difference_95"][0].get<double>(), difference);
    EXPECT_GT(json["loss_difference_95"][1].get<double>(), difference);
    EXPECT_GT(json["kl_a_b"].get<double>(), 0.0);
    EXPECT_LT(json["same_prediction"].get<double>(), 1.0);
  }
}

TEST_F(CompareCommand, GatesHoldForWhicheverIsGated) {
  // The gated model has the dense one's weights: with its gates open they are one model.
  const Json open = SucceedJson(Command("gated", "dense", {"--gates", "open"}));
  EXPECT_EQ(open["loss_difference"], 0.0);
  EXPECT_EQ(open["kl_a_b"], 0.0);
  EXPECT_EQ(open["same_prediction"], 1.0);
  EXPECT_FALSE(open["a"].contains("open_edges"));
  const Json sampled = SucceedJson(Command("gated", "dense", {"--gates", "sampled"}));
  EXPECT_NE(sampled["a"]["open_edges"], SucceedJson(Command("gated", "dense"))["a"]["open_edges"]);
}

TEST_F(CompareCommand, TellsPeople) {
  const std::string out = Succeed(Command("dense", "gated")).out;
  for (const char* part : {"B - A", "95 % interval", "perplexity", "dense", "keys per query",
                           "same next token", "KL(A||B)"}) {
    EXPECT_NE(out.find(part), std::string::npos) << part << "\n" << out;
  }
  // Two dense models have no edges to speak of, and one window gives no interval.
  const std::string short_out = Succeed(Command("dense", "dense", {"--tokens", "9"})).out;
  EXPECT_EQ(short_out.find("edges"), std::string::npos) << short_out;
  EXPECT_NE(short_out.find("none: one window"), std::string::npos) << short_out;
  EXPECT_TRUE(
      SucceedJson(Command("dense", "dense", {"--tokens", "9"}))["loss_difference_95"].is_null());
}

TEST_F(CompareCommand, RefusesWhatItCannotDo) {
  ExpectFailure(Command("dense", "absent"), 1, {"absent"});
  ExpectFailure({"compare", folder_ / "dense", "--text", text()}, 2, {"B is required"});
  ExpectFailure({"compare", folder_ / "dense", folder_ / "gated"}, 2, {"--text"});
  ExpectFailure(Command("dense", "gated", {"--context", "49"}), 1, {"49", "48 positions"});
  ExpectFailure(Command("dense", "dense", {"--gates", "hard"}), 1, {"--gates", "gated model"});
  ExpectFailure(Command("dense", "gated"), 1, {"standard output"}, {.out = "/dev/full"});
  // Vocabularies of another size, and of the same size with other words.
  ModelConfig config = dense_.config;
  config.vocabulary += 2;
  SaveModel(LivelyModel(config, 3), folder_ / "wider");
  Tokenizer::Load(folder_ / "dense").Save(folder_ / "wider");
  ExpectFailure(Command("dense", "wider"), 1,
                {folder_ / "dense", folder_ / "wider", "293", "295", "vocabulary"});
  SaveModel(dense_, folder_ / "other");
  const std::string words = "Entirely different words make entirely different merges, thank you. ";
  const std::vector<std::string_view> texts = {words};
  TrainBpe(texts, {.vocabulary_size = 290}).Save(folder_ / "other");
  ExpectFailure(Command("dense", "other"), 1,
                {folder_ / "dense", folder_ / "other", "different vocabularies"});
}

TEST(ComparePrompts, SideBySide) {
  const TemporaryFolder folder;
  MakeSmallModel(folder / "a");
  MakeSmallModel(folder / "b", /*gated=*/true);
  const std::string a = folder / "a", b = folder / "b";
  const Json json = SucceedJson({"compare", a, b, "--prompt", "The cat sat on", "--prompt", "The"});
  ASSERT_EQ(json.size(), 2u);
  for (const char* side : {"a", "b"}) {
    const Json& next = json[0][side]["next"];
    ASSERT_EQ(next.size(), 3u);
    EXPECT_GE(next[0]["probability"].get<double>(), next[1]["probability"].get<double>());
    // The first is what greedy decoding says.
    const Json text = SucceedJson(
        {"generate", side[0] == 'a' ? a : b, "--prompt", "The cat sat on", "--max-new", "1"});
    EXPECT_EQ(text["ids"].back(), next[0]["id"]);
  }
  EXPECT_FALSE(json[0]["a"].contains("open_edges"));
  // The last token's edges count: they make the prediction.
  const ModelConfig config = LoadModel(b).config;
  for (const Json& item : json) {
    const auto T = item["tokens"].get<std::int64_t>();
    EXPECT_EQ(item["b"]["causal_edges"], config.layers * config.heads * T * (T + 1) / 2);
  }
  const Json open = SucceedJson({"compare", a, b, "--prompt", "The cat sat on", "--gates", "open"});
  EXPECT_FALSE(open[0]["b"].contains("open_edges"));
  const std::string taps = folder / "taps.safetensors";
  Succeed({"capture", b, "--prompt", "The cat sat on", "--taps", "blocks.*.attn.hook_sparse_mask",
           "--out", taps});
  double gates = 0.0;
  for (const auto& [name, tensor] : ReadGolden(taps)) {
    if (!name.ends_with("hook_sparse_mask")) continue;
    gates = std::accumulate(tensor.values.begin(), tensor.values.end(), gates);
  }
  EXPECT_EQ(json[0]["b"]["open_edges"].get<double>(), gates);
  ExpectFailure({"compare", a, b}, 2, {"--text", "--prompt"});
}

}  // namespace
}  // namespace clearhead
