// SPDX-License-Identifier: MIT
// The models that ship meet the figures stated beside them, models/NAME/figures.json:
//
//   {"texts": [{"tasks": ["copy", ...], "lines": 60, "seed": 11, "loss": 1.2345, "edges": 0.021},
//              {"file": "prose.txt", "loss": 4.3210, "edges": 0.019}],
//    "tasks": [{"task": "copy", "items": 200, "seed": 12, "accuracy": 0.985}, ...]}
//
// Held-out lines are made by `clearhead tasks ... --lines`, losses are those of `clearhead eval`
// ("edges": its edge_fraction, of gated models), accuracies those of `clearhead tasks --model`
// ("exact_sums" too where it is stated). CLEARHEAD_UPDATE_FIGURES=1 (scripts/figures) measures and
// writes the values; where there is no file, it starts one with the tasks that a model of its
// tokenizer is taught.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/docs_commands.h"
#include "cli/program.h"
#include "core/error.h"
#include "support/conditions.h"
#include "support/margin.h"
#include "tasks/task_items.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

constexpr double kLossTolerance = 0.002;  // nats: other CPUs sum in another order, gates may flip
constexpr double kEdgeTolerance = 0.0001;
constexpr double kFeatureTolerance = 0.005;  // nats: a feature near its threshold may flip too
constexpr double kLabelTolerance = 0.01;     // of the share of places on which labels are right
const fs::path kModels = CLEARHEAD_MODELS_FOLDER;

bool Updating() { return std::getenv("CLEARHEAD_UPDATE_FIGURES") != nullptr; }

// Where the text is; made in `folder` if it is one of tasks.
fs::path TextFile(const TemporaryFolder& folder, const Json& text) {
  fs::path file = fs::path(CLEARHEAD_TEST_DATA) / text.value("file", "");
  if (text.contains("tasks")) {
    file = folder / "lines.txt";
    std::vector<std::string> command = {"tasks"};
    for (const Json& task : text["tasks"]) command.push_back(task.get<std::string>());
    for (const auto& [option, value] : {std::pair{"--lines", text["lines"].dump()},
                                        {"--seed", text["seed"].dump()},
                                        {"--part", std::string("held-out")},
                                        {"--out", file.string()}}) {
      command.insert(command.end(), {option, value});
    }
    Succeed(command);
  }
  return file;
}

Json MeasureText(const fs::path& model, const Json& text) {
  const TemporaryFolder folder;
  return SucceedJson(UnderThreads({"eval", model, "--text", TextFile(folder, text)}));
}

Json MeasureTask(const fs::path& model, const Json& task) {
  return SucceedJson(
      UnderThreads({"tasks", task["task"].get<std::string>(), "--model", model, "--items",
                    task["items"].dump(), "--seed", task["seed"].dump(), "--n", "0"}))[0];
}

// What is measured where nothing is stated yet.
Json FreshFigures(const fs::path& model) {
  const Tokenizer tokenizer = Tokenizer::Load(model);
  Json figures = {{"texts", Json::array()}, {"tasks", Json::array()}}, names = Json::array();
  for (const TaskInfo& info : AllTasks()) {
    try {
      MakeTaskSet(info.task, tokenizer, {.count = 1});
    } catch (const Error&) {
      continue;
    }
    // Sums by digits are for tokenizers of single characters; induction is not taught, it arises.
    if (info.task == Task::kInduction || (info.task == Task::kDigits && !names.empty())) continue;
    names.push_back(info.name);
    figures["tasks"].push_back({{"task", info.name}, {"items", 200}, {"seed", 12}});
  }
  const bool digits = names == Json::array({"digits"});
  if (digits) {
    figures["tasks"][0]["items"] = 1000;
    figures["tasks"][0]["exact_sums"] = nullptr;
  }
  figures["texts"].push_back({{"tasks", names}, {"lines", digits ? 500 : 60}, {"seed", 11}});
  if (!digits) figures["texts"].push_back({{"file", "prose.txt"}});
  return figures;
}

double Rounded(const Json& value) { return std::stod(fmt::format("{:.5f}", value.get<double>())); }

void Update(const fs::path& model) {
  const fs::path file = model / "figures.json";
  Json figures = fs::exists(file) ? ReadJsonFile(file) : FreshFigures(model);
  for (Json& text : figures["texts"]) {
    const Json measured = MeasureText(model, text);
    text["loss"] = Rounded(measured["loss"]);
    if (measured.contains("edge_fraction")) {
      text["edges"] = Rounded(measured["edge_fraction"]);
    }
  }
  for (Json& task : figures["tasks"]) {
    const Json measured = MeasureTask(model, task);
    task["accuracy"] = Rounded(measured["accuracy"]);
    if (task.contains("exact_sums")) task["exact_sums"] = Rounded(measured["exact_sums"]);
  }
  WriteJsonFile(file, figures);
}

class ShippedModel : public testing::TestWithParam<const char*> {};

TEST_P(ShippedModel, MeetsItsFigures) {
  const fs::path model = kModels / GetParam();
  ASSERT_TRUE(fs::exists(model / "config.json")) << model << " is missing";
  if (Updating()) Update(model);
  ASSERT_TRUE(fs::exists(model / "figures.json")) << "scripts/figures makes it";
  const Json figures = ReadJsonFile(model / "figures.json");
  const bool gated = ReadJsonFile(model / "config.json").contains("clearhead");
  ASSERT_FALSE(figures["texts"].empty());
  ASSERT_FALSE(figures["tasks"].empty());
  double loss = 0.0, edges = 0.0;  // farthest from what is stated
  for (const Json& text : figures["texts"]) {
    const Json measured = MeasureText(model, text);
    loss = std::max(loss, std::abs(measured["loss"].get<double>() - text["loss"].get<double>()));
    ASSERT_EQ(text.contains("edges"), gated) << text;
    if (!gated) continue;
    edges = std::max(edges, measured["edge_fraction"].get<double>() - text["edges"].get<double>());
  }
  ExpectAtMost("loss-difference", loss, {.limit = kLossTolerance, .stated = 0.5});
  if (gated) ExpectAtMost("edges-above", edges, {.limit = kEdgeTolerance, .stated = 0.5});
  double lost = 0.0;  // items that were right when the figures were made, of any task
  for (const Json& task : figures["tasks"]) {
    const Json measured = MeasureTask(model, task);
    ASSERT_EQ(measured["items"], task["items"]);
    for (const char* figure : {"accuracy", "exact_sums"}) {
      if (!task.contains(figure)) continue;
      const double share = task[figure].get<double>() - measured[figure].get<double>();
      lost = std::max(lost, std::round(share * task["items"].get<double>()));
    }
  }
  ExpectAtMost("items-lost", lost, {.limit = 1.0, .stated = 0.5});
}

INSTANTIATE_TEST_SUITE_P(Models, ShippedModel,
                         testing::Values("addition", "addition-sparse", "tale", "tale-sparse",
                                         "deep", "deep-sparse"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

// Features have figures too: {"model": "tale", "text": {"tasks": ...} or {"file": ...},
// "loss_replaced": ..., "reliable_labels": ...}: the loss with all MLPs replaced, which may be at
// most 0.15 nats above the model's own, and how far labels hold on a text that is not the index's.
class ShippedFeatures : public testing::TestWithParam<const char*> {};

TEST_P(ShippedFeatures, MeetTheirFigures) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "figures that take a quarter of an hour with a sanitizer";
#endif
  const fs::path features = kModels / GetParam();
  ASSERT_TRUE(fs::exists(features / "config.yaml")) << features << " is missing";
  Json figures = ReadJsonFile(features / "figures.json");
  double difference = 0.0, above = 0.0, labels = 0.0;
  for (Json& text : figures["texts"]) {
    const TemporaryFolder folder;
    const fs::path file = TextFile(folder, text);
    const Json measured =
        SucceedJson(UnderThreads({"features", "eval", kModels / figures["model"].get<std::string>(),
                                  features, "--text", file}))["sets"][0];
    if (Updating()) text["loss_replaced"] = Rounded(measured["loss_replaced"]);
    const auto replaced = measured["loss_replaced"].get<double>();
    difference = std::max(difference, std::abs(replaced - text["loss_replaced"].get<double>()));
    above = std::max(above, replaced - measured["loss"].get<double>());
    EXPECT_NEAR(measured["loss_errors_kept"].get<double>(), measured["loss"].get<double>(), 1e-4);
    // On what share of their places labels that are called reliable make their feature fire.
    const Json fires = SucceedJson(
        UnderThreads({"features", "index", kModels / figures["model"].get<std::string>(), features,
                      "--check", "2000", "--text", file}))["kinds"]["fires"];
    if (Updating()) text["reliable_labels"] = Rounded(fires["share"]);
    labels = std::max(
        labels, std::abs(fires["share"].get<double>() - text["reliable_labels"].get<double>()));
    EXPECT_GE(fires["share"].get<double>(), 0.85);
    EXPECT_GE(fires["seen"].get<int>(), 200);
  }
  if (Updating()) WriteJsonFile(features / "figures.json", figures);
  ExpectAtMost("label-share-difference", labels, {.limit = kLabelTolerance, .stated = 0.5});
  ExpectAtMost("loss-difference", difference, {.limit = kFeatureTolerance, .stated = 0.5});
  ExpectAtMost("above-the-model", above, {.limit = 0.15, .stated = 0.1});
}

INSTANTIATE_TEST_SUITE_P(Models, ShippedFeatures,
                         testing::Values("tale-features", "tale-sparse-features"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

// The sentence of the paper, as in docs/results.md: the sparse model takes fewer heads, and these
// are the ones that matter. Counts may move by a head where a CPU rounds differently.
TEST(ShippedPair, TheSparseModelTakesFewerHeads) {
  const Json json = SucceedJson(UnderThreads(
      {"carriers", kModels / "tale", kModels / "tale-sparse", "--features",
       kModels / "tale-features", kModels / "tale-sparse-features", "--prompt",
       "<|endoftext|>The opposite of \"large\" is \"", "--key", "5", "--random", "10"}));
  const Json &dense = json["models"][0], &sparse = json["models"][1];
  ASSERT_EQ(dense["counts"].size(), 8u);
  ASSERT_EQ(sparse["counts"].size(), 8u);
  double dense_heads = 0.0, sparse_heads = 0.0;
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(dense["counts"][i]["name"], sparse["counts"][i]["name"]);
    EXPECT_LE(sparse["counts"][i]["contributing"].get<int>(), 8);
    EXPECT_GE(dense["counts"][i]["contributing"].get<int>(), 12);
    dense_heads += dense["counts"][i]["heads"].get<double>();
    sparse_heads += sparse["counts"][i]["heads"].get<double>();
  }
  EXPECT_GE(dense_heads, 1.5 * sparse_heads);
  for (const Json& model : json["models"]) {
    SCOPED_TRACE(model["model"]);
    EXPECT_EQ(model["to"], "logit \"small\"");
    for (const Json& check : model["knock_out"]) {
      EXPECT_GE(check["share"].get<double>(), 0.6) << check["mode"];
      EXPECT_LE(check["random_mean"].get<double>(), 0.4) << check["mode"];
    }
    EXPECT_GE(model["scores"]["replacement"].get<double>(), 0.7);
    double parts = model["direct"].get<double>() + model["one_hop_sum"].get<double>() +
                   model["multi_hop"].get<double>();
    EXPECT_NEAR(parts, model["edge"].get<double>(), 1e-3);
    for (const Json& layer : model["layers"]) {
      parts = layer["bypass"].get<double>() + layer["later"].get<double>() +
              layer["earlier"].get<double>();
      for (const Json& head : layer["heads"]) parts += head.get<double>();
      EXPECT_NEAR(parts, model["edge"].get<double>(), 1e-3);
    }
  }
}

// As in docs/deep.md, on fewer prompts. Counts may move by a head where a CPU rounds differently.
TEST(ShippedPair, TheDeepModelsCircuitShrinks) {
  const TemporaryFolder folder;
  const Json json =
      SucceedJson(UnderThreads({"circuit", kModels / "deep", kModels / "deep-sparse", "--task",
                                "greater-than", "--n", "30", "--out", folder / "circuit"}));
  ASSERT_EQ(json["models"].size(), 2u);
  const Json &dense = json["models"][0], &sparse = json["models"][1];
  EXPECT_GE(dense["at_90"].get<double>(), 2.5 * sparse["at_90"].get<double>());
  EXPECT_GE(dense["attention_edges"]["kept"].get<double>(),
            3.0 * sparse["attention_edges"]["kept"].get<double>());
}

// What docs/features.md shows with the features that ship. Training them takes longer.
TEST(ShippedModels, DocsAboutFeaturesRun) {
  const fs::path root = fs::path(CLEARHEAD_TEST_DATA) / ".." / "..";
  const TemporaryFolder folder;
  for (const char* name : {"book.txt", "valid.txt"}) {
    fs::copy_file(fs::path(CLEARHEAD_TEST_DATA) / "prose.txt", folder / name);
  }
  int ran = 0;
  for (const std::string& line : CommandsOf(root / "docs" / "features.md")) {
    SCOPED_TRACE(line);
    std::vector<std::string> words = Words(line);
    words.erase(words.begin());
    if (words[1] == "train") continue;
    Succeed(words, {.folder = folder.path()});
    ++ran;
  }
  EXPECT_GE(ran, 8);
  EXPECT_TRUE(fs::exists(folder / "tale-index/index.safetensors"));
}

TEST(ShippedModels, EachIsSmallAndTold) {
  std::size_t models = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    ++models;
    EXPECT_TRUE(fs::exists(entry.path() / "README.md")) << entry.path();
    EXPECT_TRUE(fs::exists(entry.path() / "figures.json")) << entry.path();
    EXPECT_LE(fs::file_size(entry.path() / "model.safetensors"), 15'000'000u) << entry.path();
  }
  EXPECT_EQ(models, 6u);
  std::uintmax_t bytes = 0;
  for (const char* name : {"tale-features", "tale-sparse-features"}) {
    EXPECT_TRUE(fs::exists(kModels / name / "README.md")) << name;
    EXPECT_LE(fs::file_size(kModels / name / "index.safetensors"), 6'000'000u);
    for (const auto& file : fs::directory_iterator(kModels / name)) {
      if (file.path().filename().string().starts_with("W_")) bytes += file.file_size();
    }
  }
  EXPECT_LE(bytes, 48'000'000u);
}

}  // namespace
}  // namespace clearhead
