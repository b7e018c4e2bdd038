// SPDX-License-Identifier: MIT
// clearhead demo: the whole story in under a minute, with the models that ship. Everything is done
// by commands that are shown before they run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>

#include "circuits/task_score.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/run_command.h"
#include "core/error.h"
#include "core/file.h"
#include "core/progress.h"
#include "train/sparsify.h"
#include "viewer/page_assets.h"

namespace clearhead::cli {
namespace {
namespace fs = std::filesystem;

constexpr const char* kAdder = "addition";
constexpr const char* kDense = "tale";
constexpr const char* kSparse = "tale-sparse";
constexpr const char* kFeatures = "tale-sparse-features";
constexpr const char* kFeaturePrompt = "The opposite of \"large\" is \"";
constexpr std::size_t kShownFeatures = 3;
constexpr double kSureLabel = 0.8;  // share of a label's places on which its feature fires
constexpr const char* kMarker = ".clearhead-demo";
constexpr std::int64_t kSums = 200;
constexpr Task kPromptTasks[] = {Task::kCopy, Task::kIoi, Task::kGreaterThan, Task::kOpposites,
                                 Task::kAddition};
constexpr const char* kProse = "The old man looked at the sea and said";
constexpr std::int64_t kTaskItems = 50;      // to see how well the models do a task
constexpr double kMastered = 0.8;            // accuracy from which a circuit means something
constexpr const char* kTolerance = "0.005";  // nats above the dense adder
// Enough steps for a sparse adder within the time of a demonstration; the recipe for as few edges
// as possible is in models/addition-sparse/README.md.
const CommandWords kSparsifySettings = {
    "--lines", "--context",   "20",       "--batch",      "100",  "--steps",
    "250",     "--push",      "0.05",     "--slack",      "0.03", "--lambda-max",
    "5",       "--tolerance", kTolerance, "--eval-every", "25"};

struct Options {
  CommonOptions common;
  std::string out = "clearhead-demo";
};

CommandWords operator+(CommandWords words, const CommandWords& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Demo {
 public:
  explicit Demo(const Options& options) : o_(options), out_(options.out) {
    if (o_.common.seed != 0) seed_ = {"--seed", fmt::format("{}", o_.common.seed)};
  }

  void Run() {
    for (const char* name : {kAdder, kDense, kSparse}) FindModel(name);  // or say what is missing
    const auto start = std::chrono::steady_clock::now();
    TakeFolder();
    try {
      SparsifyAdder();
      ComparePrompts();
      WriteFiles();
      ShowFeatures();
    } catch (const Interrupted&) {
      throw Interrupted(fmt::format("interrupted; what was finished is in '{}'", o_.out));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    found_["seconds"] = seconds.count();
    if (o_.common.json) return PrintJson(found_);
    Say(Summary(seconds.count()));
  }

 private:
  void Say(std::string_view text) const {
    if (!o_.common.json) Print(text);
  }

  std::string In(const char* name) const { return (out_ / name).string(); }

  // A folder of its own, new or made by an earlier demo, which the marker tells: names of files do
  // not say whose they are.
  void TakeFolder() const {
    MakeDirectory(out_);
    std::error_code error;
    const bool ours = fs::exists(out_ / kMarker, error);
    if (!ours && !fs::is_empty(out_, error)) {
      Fail("'{}' was not made by a demo and is not empty; choose another --out", o_.out);
    }
    WriteFile(out_ / kMarker, "Made by `clearhead demo`, which replaces its files here.\n");
    for (const char* name : {"addition-sparse", "sentences.txt", "heads.png", "heads.svg",
                             "heads.json", "circuit", "report.html", "sums-valid.txt"}) {
      fs::remove_all(out_ / name, error);
      if (error) Fail("cannot remove '{}' of an earlier demo: {}", In(name), error.message());
    }
  }

  void ShowCommand(const CommandWords& words, const std::string& after = {}) const {
    if (interrupt_.requested()) throw Interrupted("");
    Say(fmt::format("\n$ {}{}\n", ShellLine(words), after));
  }

  // `show`: what the command prints, too.
  void Do(const CommandWords& words, const AddSome& add = AddCommands, bool show = true) const {
    ShowCommand(words);
    show && !o_.common.json ? RunCommand(words, add) : void(CaptureCommand(words, add));
  }

  // A step that another step does not need: what it cannot do is told, and the demo goes on.
  bool Try(const char* step, const CommandWords& words, const AddSome& add = AddCommands,
           bool show = true) {
    try {
      Do(words, add, show);
      return true;
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      Say(fmt::format("  did not work: {}\n", error.what()));
      found_["failed"][step] = error.what();
      return false;
    }
  }

  // Whole sums of numbers that no model was taught with.
  std::int64_t RightSums(const Model& model, const Tokenizer& tokenizer) const {
    const double share = ExactSums(model, tokenizer, {.count = kSums, .seed = o_.common.seed});
    return std::llround(share * static_cast<double>(kSums));
  }

  void SparsifyAdder() {
    const std::string text = In("sums.txt"), valid = In("sums-valid.txt"),
                      out = In("addition-sparse");
    Say("1. A model that adds becomes sparse: gates close while it keeps its loss\n");
    Do(CommandWords{"tasks", "digits", "--lines", "54000", "--part", "taught", "--out", text} +
       seed_);
    Do(CommandWords{"tasks", "digits", "--lines", "1000", "--part", "held-out", "--out", valid} +
       seed_);
    const CommandWords sparsify =
        CommandWords{"sparsify", kAdder, "--text", text, "--valid", valid} + kSparsifySettings +
        seed_ + CommandWords{"--out", out};

    const fs::path path = FindModel(kAdder);
    const Tokenizer tokenizer = Tokenizer::Load(path);
    const std::int64_t dense_right = RightSums(LoadModel(path), tokenizer);
    Json rows = Json::array();
    double dense_loss = 0.0;
    SparseQuality best;
    const auto row = [&](const std::string& name, double edges, double loss, std::int64_t right) {
      rows.push_back({{"step", name},
                      {"edge_fraction", edges},
                      {"loss", loss},
                      {"loss_above_dense", loss - dense_loss},
                      {"sums_right", right}});
      Say(fmt::format("{:>8}{:>12.2f} %{:>10.4f}{:>16}{:>14} of {}\n", name, 100.0 * edges, loss,
                      name == "dense" ? "" : fmt::format("{:+.4f}", loss - dense_loss), right,
                      kSums));
    };
    const SparsifyWatch watch = [&](const SparsifyProgress& p) {
      if (rows.empty()) {
        dense_loss = p.target - std::stod(kTolerance);
        Say(fmt::format("\n{:>8}{:>14}{:>10}{:>16}{:>21}\n", "step", "open edges", "loss",
                        "above dense", "sums right"));
        row("dense", 1.0, dense_loss, dense_right);
      }
      row(fmt::format("{}", p.step), p.quality->edge_fraction, p.quality->loss,
          RightSums(*p.model, tokenizer));
      if (p.best) best = *p.best;
    };
    const bool made = Try("sparsify", sparsify, [&](CLI::App& app) { AddSparsify(app, watch); });
    if (made) {
      row("kept", best.edge_fraction, best.loss, RightSums(LoadModel(out), tokenizer));
    }
    found_["adder"] = {{"kept", made}, {"sums", kSums}, {"rows", rows}};
  }

  // One of each task that the tokenizer can express, and a line of prose.
  void MakePrompts() {
    const Tokenizer tokenizer = Tokenizer::Load(FindModel(kDense));
    for (const Task task : kPromptTasks) {
      try {
        const TaskSet set = MakeTaskSet(task, tokenizer, {.count = 1, .seed = o_.common.seed});
        prompts_.push_back(set.items.at(0).clean_text);
        tasks_.emplace_back(InfoOf(task).name);
      } catch (const Error&) {
        continue;
      }
    }
    prompts_.emplace_back(kProse);
    if (tasks_.empty()) Fail("the tokenizer of '{}' can express no task", kDense);
  }

  void ComparePrompts() {
    Say("\n2. A language model and its sparse twin on the same prompts\n");
    MakePrompts();
    CommandWords compare = {"compare", kDense, kSparse};
    for (const std::string& prompt : prompts_) compare = compare + CommandWords{"--prompt", prompt};
    if (!o_.common.json) return Do(compare);
    found_["prompts"] = ParseJson(CaptureCommand(compare + CommandWords{"--json"}), "compare");
  }

  void WriteFiles() {
    Say("\n3. What their heads do\n");
    const std::string sentences = In("sentences.txt"), circuit = In("circuit"),
                      heads = In("heads.json");
    Do(CommandWords{"tasks"} + tasks_ + CommandWords{"--lines", "40", "--out", sentences} + seed_);

    const CommandWords compare = {"compare", kDense, kSparse, "--text", sentences};
    Do(compare);
    found_["comparison"] = ParseJson(CaptureCommand(compare + CommandWords{"--json"}), "compare");

    const CommandWords grid = {"grid", kDense, kSparse, "--prompt", prompts_.front()};
    Do(grid + CommandWords{"--out", In("heads.png")});
    Do(grid + CommandWords{"--out", In("heads.svg")});

    const CommandWords statistics = {"heads",   kDense,     kSparse, "--text",
                                     sentences, "--tokens", "4000",  "--json"};
    ShowCommand(statistics, " > " + ShellWord(heads));
    const std::string json = CaptureCommand(statistics);
    WriteFile(heads, json);
    found_["heads"] = ParseJson(json, heads)["comparison"];
    found_["heads"].erase("heads");

    const std::string task = TaskForCircuit();
    CommandWords report = {"report", kDense, kSparse};
    if (Try("circuit",
            CommandWords{"circuit", kDense, kSparse, "--task", task, "--n", "20", "--out",
                         circuit} +
                seed_,
            AddCommands, /*show=*/false)) {
      TellCircuit(circuit);
      report = report + CommandWords{"--results", circuit};
    }
    for (const std::string& prompt : prompts_) report = report + CommandWords{"--prompt", prompt};
    Try("report", report + CommandWords{"--out", In("report.html")});
    found_["out"] = o_.out;
  }

  // Of the features that fire on a prompt those that write most and whose labels can be relied on,
  // at most one for each token; and the card of the first.
  void ShowFeatures() {
    Say("\n4. What the MLPs of the sparse twin compute: features\n");
    const CommandWords show = {"features", "show", kSparse, kFeatures};
    const CommandWords prompt = show + CommandWords{"--prompt", kFeaturePrompt};
    ShowCommand(prompt);
    found_["features"] = Json::array();
    try {
      const Json fired = ParseJson(CaptureCommand(prompt + CommandWords{"--json"}), "features");
      std::vector<Json> best;
      for (const Json& token : fired["tokens"]) {
        Json strongest;
        for (std::size_t l = token["layers"].size() / 2; l < token["layers"].size(); ++l) {
          for (const Json& feature : token["layers"][l]["strongest"]) {
            const bool sure = feature.contains("label") && feature["label"].is_object() &&
                              feature["label"].value("share", 0.0) >= kSureLabel;
            if (sure && (strongest.is_null() || feature["written"] > strongest["written"])) {
              strongest = feature;
              strongest["token"] = token["token"];
            }
          }
        }
        const bool known = std::any_of(best.begin(), best.end(), [&](const Json& other) {
          return !strongest.is_null() && other["feature"] == strongest["feature"];
        });
        if (!strongest.is_null() && !known) best.push_back(strongest);
      }
      std::sort(best.begin(), best.end(),
                [](const Json& a, const Json& b) { return a["written"] > b["written"]; });
      if (best.size() > kShownFeatures) best.resize(kShownFeatures);
      for (const Json& feature : best) {
        found_["features"].push_back({{"feature", feature["feature"]},
                                      {"token", feature["token"]},
                                      {"label", feature["label"]["text"]},
                                      {"share", feature["label"]["share"]}});
        Say(fmt::format("  {} on \"{}\": fires at {} ({:.0f} % of the places)\n",
                        feature["feature"].get<std::string>(), feature["token"].get<std::string>(),
                        feature["label"]["text"].get<std::string>(),
                        100.0 * feature["label"]["share"].get<double>()));
      }
      if (!best.empty()) Do(show + CommandWords{best[0]["feature"].get<std::string>()});
    } catch (const Error& error) {
      Say(fmt::format("  did not work: {}\n", error.what()));
      found_["failed"]["features"] = error.what();
    }
  }

  // How well both do the tasks; the first that both master, or the one that they do best.
  std::string TaskForCircuit() {
    std::map<std::string, double> worse;  // of the two accuracies
    for (const char* model : {kDense, kSparse}) {
      const CommandWords words =
          CommandWords{"tasks"} + tasks_ +
          CommandWords{"--model", model, "--items", fmt::format("{}", kTaskItems), "--n", "0"} +
          seed_;
      ShowCommand(words);
      std::string line;
      const Json scores = ParseJson(CaptureCommand(words + CommandWords{"--json"}), "tasks");
      for (const Json& score : scores) {
        const auto name = score["task"].get<std::string>();
        const auto accuracy = score["accuracy"].get<double>();
        found_["accuracy"][model][name] = accuracy;
        const auto [at, is_new] = worse.emplace(name, accuracy);
        if (!is_new) at->second = std::min(at->second, accuracy);
        line += fmt::format("{}{} {:.0f} %", line.empty() ? "" : ", ", name, 100.0 * accuracy);
      }
      Say(fmt::format("  {} answers rightly: {}\n", model, line));
    }
    std::string best = tasks_[0];
    for (const std::string& name : tasks_) {
      if (worse[name] >= kMastered) return name;
      if (worse[name] > worse[best]) best = name;
    }
    return best;
  }

  void TellCircuit(const fs::path& folder) {
    const Json json = ReadJsonFile(folder / "circuit.json");
    found_["circuit"] = {{"task", json["task"]}};
    for (const Json& model : json["models"]) {
      const auto name = model["model"].get<std::string>();
      const auto count = model["at_90"].get<std::size_t>();
      found_["circuit"][name] = {{"heads_at_90", count}, {"heads", model["total"]}};
      std::string line;
      for (std::size_t i = 0; i < std::min<std::size_t>(count, 5); ++i) {
        const Json& head = model["heads"][i];
        line += fmt::format("{}{} ({})", i == 0 ? "" : ", ", head["head"].get<std::string>(),
                            head.value("role", "no name"));
      }
      Say(fmt::format("  {}: {} of {} heads do 90 % of it: {}{}\n", name, count,
                      model["total"].get<std::int64_t>(), line, count > 5 ? ", ..." : ""));
    }
  }

  // Five lines: what was found, where to look, what to do next.
  std::string Summary(double seconds) const {
    const Json& rows = found_["adder"]["rows"];
    std::string adder = "no sparse adder met the tolerance in this run (see above)";
    if (found_["adder"]["kept"].get<bool>()) {
      adder = fmt::format(
          "the adder keeps {:.2f} % of its edges and has {} of {} sums right (dense: {})",
          100.0 * rows.back()["edge_fraction"].get<double>(),
          rows.back()["sums_right"].get<std::int64_t>(), kSums,
          rows.front()["sums_right"].get<std::int64_t>());
    }
    const Json& comparison = found_["comparison"];
    const Json& heads = found_["heads"];
    std::string circuit = "no circuit";
    if (found_.contains("circuit")) {
      const auto at_90 = [&](const char* model) {
        return found_["circuit"][model]["heads_at_90"].get<std::int64_t>();
      };
      circuit = fmt::format("90 % of '{}' takes {} heads of {} in {}, {} in {}",
                            found_["circuit"]["task"].get<std::string>(), at_90(kDense),
                            found_["circuit"][kDense]["heads"].get<std::int64_t>(), kDense,
                            at_90(kSparse), kSparse);
    }
    return fmt::format(
        "\nFound in {}: {};\n"
        "  {} keeps {:.2f} % of the edges of {} at {:+.4f} nats on sentences of the tasks;\n"
        "  {}; heads that look mostly at the first token: {} -> {}.\n"
        "Look at {}{} and {}, or explore: clearhead serve {} {}\n"
        "Your own GPT-2 folder: clearhead sparsify gpt2 --text book.txt --tokens 10M --out "
        "gpt2-sparse; clearhead report gpt2 gpt2-sparse --out report.html\n",
        FormatDuration(seconds), adder, kSparse,
        100.0 * comparison["b"].value("edge_fraction", 1.0), kDense,
        comparison["loss_difference"].get<double>(), circuit,
        heads["sinks_before"].get<std::int64_t>(), heads["sinks_after"].get<std::int64_t>(),
        PageScript().empty() ? "" : In("report.html") + ", ", In("heads.png"), In("heads.json"),
        kDense, kSparse);
  }

  const Options& o_;
  const fs::path out_;
  CommandWords seed_;
  std::vector<std::string> prompts_, tasks_;
  InterruptGuard interrupt_;
  Json found_ = {{"failed", Json::object()}};
};

void Run(const Options& o) { Demo(o).Run(); }

}  // namespace

void AddDemo(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "demo",
      "The whole story in under a minute, with the models that ship: makes a dense model sparse,\n"
      "compares a language model with its sparse twin, and writes pictures, statistics, a circuit\n"
      "and a report. Each command is shown before it runs.",
      "clearhead demo --out my-demo", options, Run);
  command->add_option(
      "--out", options->out,
      "Folder to write: new, empty, or of an earlier demo (default: clearhead-demo)");
}

}  // namespace clearhead::cli
