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

#include "cli/program.h"
#include "core/error.h"
#include "support/margin.h"
#include "tasks/task_items.h"

namespace clearhead {
namespace {
namespace fs = std::filesystem;

constexpr double kLossTolerance = 0.002;  // nats: other CPUs sum in another order, gates may flip
constexpr double kEdgeTolerance = 0.0001;
const fs::path kModels = CLEARHEAD_MODELS_FOLDER;

Json MeasureText(const fs::path& model, const Json& text) {
  const TemporaryFolder folder;
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
  return SucceedJson({"eval", model, "--text", file});
}

Json MeasureTask(const fs::path& model, const Json& task) {
  return SucceedJson({"tasks", task["task"].get<std::string>(), "--model", model, "--items",
                      task["items"].dump(), "--seed", task["seed"].dump(), "--n", "0"})[0];
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
  if (std::getenv("CLEARHEAD_UPDATE_FIGURES") != nullptr) Update(model);
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
  for (const Json& task : figures["tasks"]) {
    const Json measured = MeasureTask(model, task);
    ASSERT_EQ(measured["items"], task["items"]);
    const double one_item = 1.001 / task["items"].get<double>();
    for (const char* figure : {"accuracy", "exact_sums"}) {
      if (!task.contains(figure)) continue;
      EXPECT_GE(measured[figure].get<double>(), task[figure].get<double>() - one_item) << task;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ShippedModel,
                         testing::Values("addition", "addition-sparse", "tale", "tale-sparse"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

TEST(ShippedModels, EachIsSmallAndTold) {
  std::size_t models = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    ++models;
    EXPECT_TRUE(fs::exists(entry.path() / "README.md")) << entry.path();
    EXPECT_TRUE(fs::exists(entry.path() / "figures.json")) << entry.path();
    EXPECT_LE(fs::file_size(entry.path() / "model.safetensors"), 15'000'000u) << entry.path();
  }
  EXPECT_EQ(models, 4u);
}

}  // namespace
}  // namespace clearhead
