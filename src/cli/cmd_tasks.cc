// SPDX-License-Identifier: MIT
// clearhead tasks [NAME...]: examples of the tasks, a model's score on them, files with them.
#include <fmt/format.h>

#include <algorithm>

#include "circuits/task_score.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "core/error.h"
#include "core/file.h"
#include "core/random.h"
#include "model/packed_weights.h"
#include "tasks/task_items.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> names;
  std::string model, export_path, import_path, out, metric = "logit-difference", part = "held-out";
  std::int64_t examples = 5, items = 200, lines = 0;
};

TaskPart PartOf(const Options& o) {
  return o.part == "taught" ? TaskPart::kTaught : TaskPart::kHeldOut;
}

std::vector<Task> TasksOf(const Options& o) {
  std::vector<Task> tasks;
  for (const std::string& name : o.names) tasks.push_back(ParseTask(name));
  if (o.names.empty()) {
    for (const TaskInfo& info : AllTasks()) tasks.push_back(info.task);
  }
  return tasks;
}

// Sentences of all tasks, shuffled together, one per line: text to train on.
std::string RunningText(const Options& o) {
  std::vector<std::pair<std::uint64_t, std::string>> lines;
  for (const Task task : TasksOf(o)) {
    for (std::int64_t n = 0; n < o.lines; ++n) {
      const auto number = static_cast<std::uint64_t>(n);
      lines.emplace_back(HashCoordinates(o.common.seed, {number, lines.size()}),
                         MakeTaskSentence(task, o.common.seed, number, PartOf(o)).line);
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const auto& [order, line] : lines) (text += line) += '\n';
  return text;
}

Json ItemJson(const TaskItem& item, const Tokenizer& tokenizer) {
  const auto texts = [&](const std::vector<std::int32_t>& ids) {
    Json list = Json::array();
    for (const std::int32_t id : ids) list.push_back(tokenizer.TokenText(id));
    return list;
  };
  return {{"clean", item.clean_text},
          {"corrupted", item.corrupted_text},
          {"answers", texts(item.answers)},
          {"wrongs", texts(item.wrongs)},
          {"tokens", item.clean.size()}};
}

std::string Some(const Json& texts) {
  std::string shown;
  for (std::size_t i = 0; i < std::min<std::size_t>(texts.size(), 3); ++i) {
    shown += fmt::format("{}'{}'", i == 0 ? "" : " ", texts[i].get<std::string>());
  }
  return texts.size() > 3 ? fmt::format("{} .. ({})", shown, texts.size()) : shown;
}

Json Describe(const TaskSet& set, const Options& o, const Tokenizer& tokenizer,
              const Model& model) {
  const TaskScore score = ScoreTask(model, set);
  Json json = {{"task", set.name},
               {"metric", ToText(set.metric)},
               {"part", o.import_path.empty() ? o.part : std::string("imported")},
               {"items", score.items},
               {"skipped", set.skipped},
               {"accuracy", score.accuracy},
               {"preferred", score.preferred},
               {"clean_metric", score.clean_metric},
               {"corrupted_metric", score.corrupted_metric},
               {"examples", Json::array()}};
  for (std::size_t i = 0; i < set.items.size() && static_cast<std::int64_t>(i) < o.examples; ++i) {
    json["examples"].push_back(ItemJson(set.items[i], tokenizer));
  }
  return json;
}

std::string Table(const Json& list) {
  std::string text = fmt::format("{:<14}{:>7}{:>10}{:>11}{:>10}{:>11}  {}\n", "task", "items",
                                 "accuracy", "preferred", "clean", "corrupted", "metric");
  for (const Json& task : list) {
    text += fmt::format("{:<14}{:>7}{:>9.1f}%{:>10.1f}%{:>10.3f}{:>11.3f}  {}\n",
                        task["task"].get<std::string>(), task["items"].get<std::int64_t>(),
                        100.0 * task["accuracy"].get<double>(),
                        100.0 * task["preferred"].get<double>(), task["clean_metric"].get<double>(),
                        task["corrupted_metric"].get<double>(), task["metric"].get<std::string>());
  }
  for (const Json& task : list) {
    if (task.contains("exact_sums")) {
      text += fmt::format("whole sums right: {:.1f}%\n", 100.0 * task["exact_sums"].get<double>());
    }
    for (const Json& item : task["examples"]) {
      text += fmt::format("\n{} ->{} not {}\n{}\n", item["clean"].get<std::string>(),
                          Some(item["answers"]), Some(item["wrongs"]),
                          item["corrupted"].get<std::string>());
    }
  }
  return text;
}

void ListTasks(const Options& o) {
  Json list = Json::array();
  std::string text;
  for (const Task task : TasksOf(o)) {
    const TaskInfo& info = InfoOf(task);
    text += fmt::format("{:<14}{} ({})\n", info.name, info.description, ToText(info.metric));
    Json examples = Json::array();
    for (std::int64_t n = 0; n < o.examples; ++n) {
      const TaskSentence sentence =
          MakeTaskSentence(task, o.common.seed, static_cast<std::uint64_t>(n), PartOf(o));
      examples.push_back({{"clean", sentence.clean},
                          {"corrupted", sentence.corrupted},
                          {"answers", sentence.answers},
                          {"wrongs", sentence.wrongs}});
      text += fmt::format("  {} ->{} not {}\n  {}\n\n", sentence.clean,
                          Some(examples.back()["answers"]), Some(examples.back()["wrongs"]),
                          sentence.corrupted);
    }
    list.push_back({{"task", info.name},
                    {"description", info.description},
                    {"metric", ToText(info.metric)},
                    {"examples", examples}});
  }
  o.common.json ? PrintJson(list) : Print(text);
}

void Run(const Options& o) {
  if (o.lines > 0) {
    const std::string text = RunningText(o);
    if (o.out.empty()) return Print(text);
    return WriteFile(o.out, text);
  }
  if (o.model.empty()) {
    if (!o.export_path.empty() || !o.import_path.empty()) {
      FailUsage("--model is required: task files hold token numbers of one tokenizer");
    }
    return ListTasks(o);
  }
  const std::filesystem::path path = FindModel(o.model);
  const Tokenizer tokenizer = Tokenizer::Load(path);
  Model model = LoadModel(path);
  PackForUse(&model);
  Json list = Json::array();
  if (!o.import_path.empty()) {
    const TaskMetric metric = o.metric == "probability-difference"
                                  ? TaskMetric::kProbabilityDifference
                                  : TaskMetric::kLogitDifference;
    list.push_back(Describe(ReadTaskCsv(o.import_path, tokenizer, metric), o, tokenizer, model));
  } else {
    const std::vector<Task> tasks = TasksOf(o);
    if (!o.export_path.empty() && tasks.size() != 1) FailUsage("--export takes one task");
    for (const Task task : tasks) {
      TaskSet set;
      try {
        set = MakeTaskSet(task, tokenizer,
                          {.count = o.items, .seed = o.common.seed, .part = PartOf(o)});
      } catch (const Error&) {
        if (!o.names.empty()) throw;
        continue;  // of all tasks, show those that the tokenizer can express
      }
      if (!o.export_path.empty()) WriteTaskCsv(set, o.export_path);
      list.push_back(Describe(set, o, tokenizer, model));
      if (task == Task::kDigits) {
        list.back()["exact_sums"] = ExactSums(
            model, tokenizer, {.count = o.items, .seed = o.common.seed, .part = PartOf(o)});
      }
    }
  }
  o.common.json ? PrintJson(list) : Print(Table(list));
}

}  // namespace

void AddTasks(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command =
      AddCommand(app, "tasks",
                 "Prompts with one known behaviour each, with corrupted twins: examples, a model's "
                 "score,\ntext to train on, and files that EAP-IG reads.",
                 "clearhead tasks ioi --model tale --n 3", options, Run);
  command->add_option("NAME", o.names, "Tasks (default: all)");
  command->add_option("--model", o.model, "Score this model, and use its tokenizer");
  command->add_option("--n", o.examples, "Examples to show of each (default: 5)")
      ->check(NonNegativeNumber());
  command->add_option("--items", o.items, "Items to score, or to export (default: 200)")
      ->check(PositiveNumber());
  command
      ->add_option("--part", o.part,
                   "held-out (default), or taught: what --lines gives models to learn from")
      ->check(IsMember({"held-out", "taught"}));
  command->add_option("--export", o.export_path,
                      "Write the items as CSV: clean,corrupted,correct_idx,incorrect_idx");
  command->add_option("--import", o.import_path, "Score the items of such a file");
  command->add_option("--metric", o.metric, "Of imported items (default: logit-difference)")
      ->check(IsMember({"logit-difference", "probability-difference"}));
  command
      ->add_option("--lines", o.lines,
                   "Write this many sentences of each task as running text instead")
      ->check(PositiveNumber());
  command->add_option("--out", o.out, "Where --lines go (default: standard output)");
}

}  // namespace clearhead::cli
