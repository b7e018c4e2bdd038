// SPDX-License-Identifier: MIT
// clearhead circuit A [B] --task T: which heads and edges a behaviour needs, in one or two models.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "cli/run_command.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/threads.h"
#include "figures/circuit_output.h"
#include "measure/patching_times.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> models, tasks, labels;
  std::string import_path, metric = "logit-difference", part = "held-out", out, table;
  std::string level = "heads", ablation = "resample", rank, method = "eap-ig";
  std::int64_t items = 100, steps = 5, random_sets = 5;
  bool benchmark = false;
};

struct LoadedModel {
  std::string label;
  Model model;
  Tokenizer tokenizer;
};

// The name of the folder, or what --label says; never the same twice.
std::vector<std::string> Labels(const Options& o) {
  if (!o.labels.empty() && o.labels.size() != o.models.size()) {
    FailUsage("--label needs one name for each model: {} models, {} names", o.models.size(),
              o.labels.size());
  }
  std::vector<std::string> labels = o.labels;
  for (std::size_t i = labels.size(); i < o.models.size(); ++i) {
    const std::filesystem::path path = std::filesystem::path(o.models[i]).lexically_normal();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
    labels.push_back(name.empty() ? fmt::format("model{}", i + 1) : name);
  }
  if (labels.size() == 2 && labels[0] == labels[1]) labels[1] += "-2";
  return labels;
}

std::vector<LoadedModel> Load(const Options& o) {
  const std::vector<std::string> labels = Labels(o);
  std::vector<LoadedModel> models;
  for (std::size_t i = 0; i < o.models.size(); ++i) {
    const std::filesystem::path path = FindModel(o.models[i]);
    models.push_back({labels[i], LoadModel(path), Tokenizer::Load(path)});
  }
  return models;
}

FindOptions SearchOf(const Options& o) {
  FindOptions find{.heads = o.level != "edges",
                   .edges = o.level != "heads",
                   .ablation = o.ablation == "mean"   ? Ablation::kMean
                               : o.ablation == "zero" ? Ablation::kZero
                                                      : Ablation::kResample,
                   .steps = o.method == "eap" ? 0 : o.steps,
                   .curve = {.random_sets = o.random_sets, .seed = o.common.seed}};
  const bool resample = find.ablation == Ablation::kResample;
  const std::string rank = !o.rank.empty() ? o.rank : resample ? "both" : "noise";
  find.importance = rank == "noise"         ? HeadImportance::kNoise
                    : rank == "denoise"     ? HeadImportance::kDenoise
                    : rank == "attribution" ? HeadImportance::kAttribution
                                            : HeadImportance::kBoth;
  if (!resample && (rank == "both" || rank == "denoise")) {
    FailUsage(
        "--rank {} needs --ablation resample: denoising puts clean outputs into the "
        "corrupted run, which a mean or zero cannot do",
        rank);
  }
  return find;
}

TaskSet SetOf(const Options& o, const std::string& task, const Tokenizer& tokenizer) {
  if (!o.import_path.empty()) {
    return ReadTaskCsv(o.import_path, tokenizer,
                       o.metric == "probability-difference" ? TaskMetric::kProbabilityDifference
                                                            : TaskMetric::kLogitDifference);
  }
  return MakeTaskSet(ParseTask(task), tokenizer,
                     {.count = o.items,
                      .seed = o.common.seed,
                      .part = o.part == "taught" ? TaskPart::kTaught : TaskPart::kHeldOut});
}

// One progress line for each thing that runs.
class ProgressLines {
 public:
  explicit ProgressLines(std::string prefix) : prefix_(std::move(prefix)) {}

  void Show(std::string_view what, std::int64_t done, std::int64_t total) {
    if (what != what_) {
      bar_.reset();
      what_ = what;
      bar_.emplace(prefix_ + what_, total, total == 0 ? "sets" : "prompts", RankProgress());
    }
    bar_->Update(done);
  }

 private:
  std::string prefix_, what_;
  std::optional<Progress> bar_;
};

std::vector<CircuitReport> Search(const Options& o, const std::string& task,
                                  const std::vector<LoadedModel>& models) {
  std::vector<CircuitReport> reports;
  for (const LoadedModel& model : models) {
    ProgressLines lines(fmt::format("{}: ", model.label));
    FindOptions find = SearchOf(o);
    find.ranks = &Ranks();
    find.on_progress = [&](std::string_view what, std::int64_t done, std::int64_t total) {
      lines.Show(what, done, total);
    };
    try {
      reports.push_back(FindCircuit(model.model, SetOf(o, task, model.tokenizer), find));
    } catch (const Error& error) {
      if (models.size() == 1) throw;
      Fail("{}: {}", model.label, error.what());
    }
    reports.back().model = model.label;
    reports.back().options.on_progress = {};
    reports.back().options.ranks = nullptr;
  }
  return reports;
}

// As it was typed, for documents.
std::string CommandLine(const Options& o) {
  std::string line = fmt::format("clearhead circuit {}", fmt::join(o.models, " "));
  if (!o.labels.empty()) line += fmt::format(" --label {}", fmt::join(o.labels, ","));
  line += o.import_path.empty() ? fmt::format(" --task {}", fmt::join(o.tasks, ","))
                                : fmt::format(" --import {} --metric {}", o.import_path, o.metric);
  line += fmt::format(" --level {} --n {}", o.level, o.items);
  if (o.ablation != "resample") line += fmt::format(" --ablation {}", o.ablation);
  if (!o.rank.empty()) line += fmt::format(" --rank {}", o.rank);
  if (o.method != "eap-ig") line += fmt::format(" --method {}", o.method);
  if (o.steps != 5) line += fmt::format(" --steps {}", o.steps);
  if (o.random_sets != 5) line += fmt::format(" --random {}", o.random_sets);
  if (o.part != "held-out") line += fmt::format(" --part {}", o.part);
  if (o.common.seed != 0) line += fmt::format(" --seed {}", o.common.seed);
  line += fmt::format(" --out {}", o.out);
  if (!o.table.empty()) line += fmt::format(" --table {}", o.table);
  return line;
}

// How to see the heads that were found.
std::string GridCommand(const Options& o, std::span<const CircuitReport> reports,
                        const std::filesystem::path& folder) {
  std::string line = fmt::format("clearhead grid {}", fmt::join(o.models, " "));
  for (const CircuitReport& report : reports) {
    line += fmt::format(" --heads circuit:{}",
                        (folder / CircuitFileName(reports.size(), report.model)).string());
  }
  return fmt::format("\nTo see these heads: {} --prompt {} --out {}\n", line,
                     ShellWord(reports[0].example), (folder / "grid.svg").string());
}

// Exact patching of all heads, and the same by running the whole model for every patch; beyond
// kRerunAll heads for some of them only.
constexpr std::int64_t kRerunAll = 64;

void Benchmark(const Options& o) {
  Json list = Json::array();
  std::string text = fmt::format(
      "Exact patching of every head, against running the whole model for every patch "
      "({} threads; seconds, in brackets of processor time)\n{:<16} {:<14} {:>7} {:>5} {:>18} "
      "{:>18} {:>8}  largest difference of effects\n",
      Threads(), "model", "task", "prompts", "heads", "patching", "whole runs", "faster");
  const auto add = [&](const std::string& model, const std::string& task, const PatchingTimes& t) {
    list.push_back({{"model", model},
                    {"task", task},
                    {"prompts", t.prompts},
                    {"heads", t.heads},
                    {"threads", Threads()},
                    {"patching_seconds", t.seconds},
                    {"rerunning_seconds", t.rerun_seconds},
                    {"patching_processor_seconds", t.processor_seconds},
                    {"rerunning_processor_seconds", t.rerun_processor_seconds},
                    {"times_faster", t.TimesFaster()},
                    {"largest_difference", t.largest_difference}});
    text += fmt::format("{:<16} {:<14} {:>7} {:>5} {:>18} {:>18} {:>6.1f} x  {:.1e}\n", model, task,
                        t.prompts, t.heads,
                        fmt::format("{:.2f} ({:.2f})", t.seconds, t.processor_seconds),
                        fmt::format("{:.2f} ({:.2f})", t.rerun_seconds, t.rerun_processor_seconds),
                        t.TimesFaster(), t.largest_difference);
  };
  for (const LoadedModel& model : Load(o)) {
    const ModelConfig& config = model.model.config;
    PatchingTimes all;
    for (const std::string& task : o.tasks) {
      const TaskSet set = SetOf(o, task, model.tokenizer);
      const PatchingTimes t =
          TimePatching(model.model, set, config.layers * config.heads > kRerunAll ? 8 : 1);
      add(model.label, set.name, t);
      all.Add(t);
    }
    if (o.tasks.size() > 1) add(model.label, "all of them", all);
  }
  o.common.json ? PrintJson(list) : Print(text);
}

void Run(const Options& given) {
  Options o = given;
  if (o.models.size() > 2) FailUsage("one or two models, not {}", o.models.size());
  if (o.tasks.empty() == o.import_path.empty()) FailUsage("give either --task or --import");
  if (!o.import_path.empty()) o.tasks = {std::string("imported")};
  if (o.import_path.empty()) {
    for (const std::string& task : o.tasks) ParseTask(task);
  }
  SearchOf(o);  // refuses what does not go together before any work
  if (o.benchmark) {
    if (Ranks().first()) Benchmark(o);
    return;
  }
  if (o.out.empty()) FailUsage("--out is required: a folder for circuit.json and the figures");

  const std::vector<LoadedModel> models = Load(o);
  std::vector<CircuitReport> all;
  Json documents = Json::array();
  std::string text;
  for (const std::string& task : o.tasks) {
    const std::vector<CircuitReport> reports = Search(o, task, models);
    if (!Ranks().first()) continue;
    const std::filesystem::path folder =
        o.tasks.size() == 1 ? std::filesystem::path(o.out) : std::filesystem::path(o.out) / task;
    WriteCircuitFiles(reports, folder);
    documents.push_back(CircuitsJson(reports));
    text += fmt::format("{}{}{}", text.empty() ? "" : "\n", CircuitText(reports),
                        GridCommand(o, reports, folder));
    all.insert(all.end(), reports.begin(), reports.end());
  }
  if (!Ranks().first()) return;
  if (!o.table.empty()) ReplaceSection(o.table, CircuitMarkdown(all, CommandLine(o)));
  if (o.common.json) return PrintJson(o.tasks.size() == 1 ? documents[0] : documents);
  Print(text);
}

}  // namespace

void AddCircuit(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "circuit",
      "Find which heads and edges a behaviour needs: importance by exact patching, circuits that "
      "are\nactually run, their faithfulness over their size. Two models side by side.",
      "clearhead circuit tale tale-sparse --task copy --level both --out copy-circuit", options,
      Run, RunsOn::kAllRanks);
  command->add_option("MODEL", o.models, "One or two models")->required();
  command->add_option("--task", o.tasks, "Task, or several with commas (see clearhead tasks)")
      ->delimiter(',');
  command->add_option("--import", o.import_path,
                      "Prompts from a CSV file instead: clean,corrupted,correct_idx,incorrect_idx");
  command->add_option("--metric", o.metric, "Of imported prompts (default: logit-difference)")
      ->check(IsMember({"logit-difference", "probability-difference"}));
  command->add_option("--part", o.part, "held-out prompts (default), or taught")
      ->check(IsMember({"held-out", "taught"}));
  command->add_option("--level", o.level, "heads (default), edges of the residual graph, or both")
      ->check(IsMember({"heads", "edges", "both"}));
  command->add_option("--n", o.items, "Prompts (default: 100)")->check(PositiveNumber());
  command
      ->add_option("--ablation", o.ablation,
                   "What heads outside the circuit give: resample (default), mean, zero")
      ->check(IsMember({"resample", "mean", "zero"}));
  command
      ->add_option("--rank", o.rank,
                   "Heads by exact patching in noise, denoise or both directions, or by "
                   "attribution (default: both; noise with mean and zero)")
      ->check(IsMember({"both", "noise", "denoise", "attribution"}));
  command->add_option("--method", o.method, "Scores of edges: eap-ig (default) or eap")
      ->check(IsMember({"eap-ig", "eap"}));
  command->add_option("--steps", o.steps, "Steps of eap-ig (default: 5)")->check(PositiveNumber());
  command->add_option("--random", o.random_sets, "Random sets of each size (default: 5)")
      ->check(PositiveNumber());
  command->add_option("--label", o.labels, "Names for the models, with commas")->delimiter(',');
  command->add_option("--out", o.out, "Folder to write; one folder per task inside it for several");
  command->add_option("--table", o.table,
                      "Also put a table of all tasks into this Markdown file, in its own section");
  command->add_flag("--benchmark", o.benchmark,
                    "Only time exact patching of all heads against running the whole model");
}

}  // namespace clearhead::cli
