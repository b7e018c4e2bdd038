// SPDX-License-Identifier: MIT
// clearhead trace and carriers on models with words: tokens by name, tasks, groups that are edited,
// figures, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "cli/graph_schema.h"
#include "cli/task_model.h"
#include "features/random_transcoder.h"
#include "features/transcoder_files.h"
#include "model/fingerprint.h"
#include "support/golden.h"
#include "tasks/task_items.h"
#include "tasks/tasks.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

// A softmax model, a gated one, and features for each.
class TraceWords : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    MakeTaskModel(Path("dense"));
    MakeTaskModel(Path("gated"), AttentionKind::kGated);
    SaveModel(LivelyModel(LoadModel(Path("gated")).config, 4), Path("gated"));  // other weights
    for (const char* name : {"dense", "gated"}) {
      const Model model = LoadModel(Path(name));
      Transcoder transcoder = RandomTranscoder(model, {.features = 24});
      transcoder.config.model = name;
      transcoder.config.model_hash = fmt::format("{:016x}", WeightsFingerprint(model));
      SaveTranscoder(transcoder, Path(std::string(name) + "-features"), DType::kF32);
    }
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string Path(const std::string& name) { return *folder_ / name; }

  static std::vector<std::string> Trace(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"trace", Path("dense"), Path("dense-features"), "--prompt",
                                      kPrompt};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  static std::vector<std::string> Carriers(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"carriers",   Path("dense"),          Path("gated"),
                                      "--features", Path("dense-features"), Path("gated-features")};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static constexpr const char* kPrompt = "The opposite of \"hot\" is \"";
  static TemporaryFolder* folder_;
};
TemporaryFolder* TraceWords::folder_ = nullptr;

// Rows of a matrix that was written by --matrix.
std::vector<float> LastRow(const std::filesystem::path& path) {
  const auto tensors = ReadGolden(path);
  const GoldenTensor& edges = tensors.at("edges");
  const auto columns = static_cast<std::ptrdiff_t>(edges.shape[1]);
  return {edges.values.end() - columns, edges.values.end()};
}

TEST_F(TraceWords, AContrastIsTheDifferenceOfItsLogits) {
  const TemporaryFolder out;
  Succeed(Trace({"--all-features", "--target", "cold", "--matrix", out / "a.safetensors"}));
  Succeed(Trace({"--all-features", "--target", "hot", "--matrix", out / "b.safetensors"}));
  const Json json = SucceedJson(
      Trace({"--all-features", "--contrast", "cold,hot", "--matrix", out / "c.safetensors"}));
  const std::vector<float> a = LastRow(out / "a.safetensors"), b = LastRow(out / "b.safetensors"),
                           c = LastRow(out / "c.safetensors");
  ASSERT_EQ(a.size(), c.size());
  double sum = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    EXPECT_NEAR(c[i], a[i] - b[i], 2e-5);
    largest = std::max(largest, std::abs(static_cast<double>(c[i])));
    sum += c[i];
  }
  EXPECT_GT(largest, 1e-3);
  ASSERT_EQ(json["logits"].size(), 1u);
  EXPECT_NEAR(json["logits"][0]["value"].get<double>(), sum, 2e-5);
  EXPECT_THAT(json["logits"][0]["name"].get<std::string>(),
              testing::AllOf(HasSubstr("cold"), HasSubstr("hot")));
}

TEST_F(TraceWords, GroupsAreEditedAndAddUp) {
  const TemporaryFolder out;
  Succeed(Trace({"--all-features", "--node-share", "1", "--target", "cold", "--out", out / "g"}));
  const Json before = SucceedJson(Trace({"--all-features", "--node-share", "1", "--target", "cold",
                                         "--groups", out / "g/groups.json"}));
  // All groups of the position with the most of them become one with a name of its own.
  Json groups = ReadJsonFile(out / "g/groups.json");
  std::map<std::int64_t, int> at;
  for (const Json& group : groups["groups"]) ++at[group["position"].get<std::int64_t>()];
  const std::int64_t position =
      std::max_element(at.begin(), at.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
  ASSERT_GE(at[position], 2);
  Json merged = {{"name", "all of it"}, {"position", position}, {"features", Json::array()}};
  Json edited = Json::array();
  for (const Json& group : groups["groups"]) {
    if (group["position"] != position) {
      edited.push_back(group);
      continue;
    }
    for (const Json& feature : group["features"]) merged["features"].push_back(feature);
  }
  edited.push_back(merged);
  WriteJsonFile(out / "edited.json", {{"groups", edited}});
  const Json after = SucceedJson(Trace({"--all-features", "--node-share", "1", "--target", "cold",
                                        "--groups", out / "edited.json"}));
  const std::string logit = after["logits"][0]["name"].get<std::string>();
  double parts = 0.0;
  std::size_t features = 0;
  for (const Json& group : before["groups"]) {
    if (group["position"] != position) continue;
    parts += group["to_logits"][logit].get<double>();
    features += group["features"].size();
  }
  bool found = false;
  for (const Json& group : after["groups"]) {
    if (group["name"] != "all of it") {
      EXPECT_NE(group["position"], position);
      continue;
    }
    found = true;
    EXPECT_NEAR(group["to_logits"][logit].get<double>(), parts, 2e-5);
    EXPECT_EQ(group["features"].size(), features);
  }
  EXPECT_TRUE(found);
  // The group can be asked for by its name.
  const std::string last = std::to_string(after["ids"].size() - 1);
  if (std::to_string(position) != last) {
    const Json json =
        SucceedJson({"carriers", Path("dense"), "--features", Path("dense-features"), "--prompt",
                     kPrompt, "--key", std::to_string(position), "--groups", out / "edited.json",
                     "--from", "all of it", "--target", "cold", "--random", "0"});
    EXPECT_NEAR(json["models"][0]["edge"].get<double>(), parts, 2e-5);
  }
}

TEST_F(TraceWords, FilesAndFigures) {
  const TemporaryFolder out;
  Succeed(Trace({"--out", out / "g"}));
  for (const char* name : {"graph.json", "graph-metadata.json", "graph.safetensors", "groups.json",
                           "graph.svg", "graph.pdf", "graph.png"}) {
    EXPECT_TRUE(std::filesystem::exists(out / "g" / name)) << name;
  }
  EXPECT_THAT(ReadFile(out / "g/graph.svg"), HasSubstr("<svg"));
  EXPECT_TRUE(ReadFile(out / "g/graph.pdf").starts_with("%PDF"));
  // The compact file has the edges of graph.json.
  const Json graph = ReadJsonFile(out / "g/graph.json");
  ExpectPublishedSchema(graph, LoadModel(Path("dense")).config.layers);
  EXPECT_EQ(graph["metadata"]["prompt"], kPrompt);
  const auto tensors = ReadGolden(out / "g/graph.safetensors");
  const std::vector<float>& weights = tensors.at("weight").values;
  ASSERT_EQ(weights.size(), graph["links"].size());
  double listed = 0.0;
  for (const Json& link : graph["links"]) listed += std::abs(link["weight"].get<double>());
  const double stored = std::accumulate(weights.begin(), weights.end(), 0.0,
                                        [](double sum, float w) { return sum + std::abs(w); });
  EXPECT_NEAR(stored, listed, 1e-4 * listed);

  for (const char* name : {"f.svg", "f.pdf", "f.png"}) {
    Succeed(Carriers({"--prompt", kPrompt, "--key", "4", "--random", "0", "--out", out / name}));
  }
  EXPECT_THAT(ReadFile(out / "f.svg"), HasSubstr("<svg"));
  EXPECT_TRUE(ReadFile(out / "f.pdf").starts_with("%PDF"));
  // One model, without features, a pair of one position.
  Succeed({"carriers", Path("gated"), "--prompt", kPrompt, "--key", "2", "--query", "2", "--random",
           "0", "--out", out / "one.png"});
  EXPECT_GT(std::filesystem::file_size(out / "one.png"), 1000u);
}

// What a gate needs to close is said where there are gates.
TEST_F(TraceWords, HeadsSayWhyTheyLookThere) {
  const std::string text =
      Succeed(Carriers({"--prompt", kPrompt, "--key", "4", "--share", "1", "--random", "0"})).out;
  const std::size_t gated = text.find("gated: ");
  ASSERT_NE(gated, std::string::npos);
  EXPECT_THAT(text.substr(gated), HasSubstr("gate open by "));
  EXPECT_THAT(text.substr(0, gated), testing::Not(HasSubstr("gate open by ")));
  const Json json =
      SucceedJson(Carriers({"--prompt", kPrompt, "--key", "4", "--share", "1", "--random", "0"}));
  for (const Json& model : json["models"]) {
    for (const Json& head : model["heads"]) {
      EXPECT_FALSE(head["pairs"].empty());
      EXPECT_EQ(head.contains("gate"), model["model"] == "gated");
      if (!head.contains("gate")) continue;
      const double margin = head["gate"]["margin"].get<double>();
      EXPECT_GT(margin, 0.0);
      EXPECT_NEAR(margin, head["score"].get<double>() + 0.25, 1e-4);
      for (const Json& pair : head["gate"]["closing"]) {
        EXPECT_GE(pair["value"].get<double>(), margin);
      }
    }
  }
}

TEST_F(TraceWords, InterventionsAgree) {
  const Json check = SucceedJson(Trace({"--all-features", "--check", "6"}))["check"];
  EXPECT_EQ(check["interventions"], 6);
  EXPECT_GT(check["predictions"].get<int>(), 6);
  EXPECT_GT(check["largest_prediction"].get<double>(), 1e-3);
  EXPECT_LE(check["frozen_largest_difference"].get<double>(), 5e-5);
  EXPECT_LE(std::abs(check["free_correlation"].get<double>()), 1.0);
  EXPECT_THAT(Succeed(Trace({"--check", "2"})).out, HasSubstr("2 strong features switched off"));
}

TEST_F(TraceWords, TasksAreAveragesOverTheirPrompts) {
  const std::vector<std::string> words =
      Carriers({"--task", "opposites", "--n", "3", "--random", "2", "--seed", "5"});
  const Json json = SucceedJson(words);
  EXPECT_EQ(json["schema"], "clearhead.carriers-task.1");
  ASSERT_EQ(json["models"].size(), 2u);
  EXPECT_EQ(json["models"], SucceedJson(words)["models"]);
  // The same prompts one by one.
  const Tokenizer tokenizer = Tokenizer::Load(Path("dense"));
  const TaskSet set = MakeTaskSet(ParseTask("opposites"), tokenizer,
                                  {.count = 120, .seed = 5, .part = TaskPart::kHeldOut});
  std::set<std::vector<std::int32_t>> seen;
  std::vector<double> heads;
  for (const TaskItem& item : set.items) {
    if (heads.size() == 3 || !seen.insert(item.clean).second) continue;
    const auto key =
        std::mismatch(item.clean.begin(), item.clean.end(), item.corrupted.begin()).first -
        item.clean.begin();
    const Json one =
        SucceedJson({"carriers", Path("dense"), "--features", Path("dense-features"), "--ids",
                     IdList(item.clean), "--key", std::to_string(key), "--target-ids",
                     std::to_string(item.answers[0]), "--random", "0"});
    heads.push_back(one["models"][0]["n80"].get<double>());
  }
  const Json& dense = json["models"][0];
  EXPECT_EQ(dense["prompts"], 3);
  bool found = false;
  for (const Json& count : dense["counts"]) {
    if (count["name"] != "position to logit") continue;
    found = true;
    EXPECT_EQ(count["heads"]["values"], Json(heads));
    EXPECT_NEAR(count["heads"]["mean"].get<double>(),
                std::accumulate(heads.begin(), heads.end(), 0.0) / 3.0, 1e-9);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(dense["knock_out"].size(), 3u);
  const std::string text = Succeed(words).out;
  EXPECT_THAT(text, HasSubstr("opposites: 3 prompts, heads for 80 %"));
  EXPECT_THAT(text, HasSubstr("position to logit"));
}

TEST_F(TraceWords, RefusalsAreOneClearLine) {
  const auto refuse = [&](const std::vector<std::string>& more, int code,
                          const std::vector<std::string>& parts) {
    std::vector<std::string> words = Trace(more);
    words.emplace_back("--json");
    ExpectFailure(words, code, parts);
  };
  refuse({"--target", "hot and cold"}, 1, {"not one token but", "--target-ids"});
  refuse({"--contrast", "cold"}, 2, {"--contrast", "two tokens", "not 1"});
  refuse({"--contrast", "cold,hot", "--target", "hot"}, 2, {"one of --target"});
  refuse({"--first-position", "99"}, 1, {"99"});
  refuse({"--groups", "nothing.json"}, 1, {"nothing.json"});

  const TemporaryFolder out;
  const auto group = [](const char* name, std::int64_t position, const char* feature) {
    return Json{{"name", name}, {"position", position}, {"features", {feature}}};
  };
  const auto groups = [&](const Json& document, const std::vector<std::string>& parts) {
    WriteJsonFile(out / "groups.json", document);
    refuse({"--groups", out / "groups.json"}, 1, parts);
  };
  groups({{"sets", 1}}, {"groups.json", "no list of groups"});
  groups({{"groups", {{{"name", "a"}}}}}, {"lacks name, position or features"});
  groups({{"groups", {group("a", 99, "L0F1")}}}, {"position 99", "outside the prompt"});
  groups({{"groups", {group("a", 1, "L0F9999")}}}, {"L0F9999", "not active at position 1"});
  groups({{"groups", {group("a", 1, "token")}}}, {"is no feature"});
  const Json traced = SucceedJson(Trace({"--node-share", "1"}));
  const std::string name = traced["groups"][0]["features"][0].get<std::string>();
  const std::string feature = name.substr(0, name.find('@'));
  const auto at = traced["groups"][0]["position"].get<std::int64_t>();
  groups({{"groups", {group("a", at, feature.c_str()), group("b", at, feature.c_str())}}},
         {"in two groups", "'a'", "'b'"});

  // Features of other weights of the same shape.
  ExpectFailure({"trace", Path("gated"), Path("dense-features"), "--prompt", kPrompt, "--json"}, 1,
                {"made for 'dense'", "fingerprint", "give the model"});
  ExpectFailure(Carriers({"--prompt", kPrompt, "--key", "90"}), 1, {"--key 90"});
  ExpectFailure(Carriers({"--prompt", kPrompt, "--key", "3", "--query", "2"}), 1,
                {"--key 3", "--query 2"});
  ExpectFailure(Carriers({"--prompt", kPrompt, "--key", "3", "--from", "L0F9999"}), 1,
                {"L0F9999", "not active at position 3"});
  ExpectFailure(Carriers({"--prompt", kPrompt, "--key", "3", "--to", "token"}), 1,
                {"'token' is no target"});
  ExpectFailure(Carriers({"--prompt", kPrompt, "--key", "3", "--out", "x.gif"}), 1, {"x.gif"});
  ExpectFailure(Carriers({"--task", "opposites", "--key", "3"}), 2, {"--task brings its own"});
  ExpectFailure(Carriers({"--task", "opposites", "--out", "x.svg"}), 2, {"--out draws one prompt"});
  ExpectFailure(Carriers({"--task", "juggling"}), 1, {"juggling"});
}

}  // namespace
}  // namespace clearhead
