// SPDX-License-Identifier: MIT
// clearhead carriers A [B] --features FA [FB] --prompt S --key K: which heads carry what is at one
// position to another, in one or two models.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "cli/carriers_output.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/numbers.h"
#include "cli/trace_figures.h"
#include "core/error.h"
#include "core/progress.h"
#include "features/node_names.h"
#include "figures/canvas.h"
#include "tasks/task_items.h"

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> models, features;
  InputOptions input;
  TargetOptions targets;
  std::string from = "all", to = "logit", task, groups, out;
  std::int64_t key = -1, query = -1, max_features = 4000, items = 50, first_position = -1,
               pairs = 3;
  CarrierOptions carriers;
  PruneOptions prune{.nodes = 0.95};
};

// A prompt as one model reads it.
struct Question {
  std::vector<std::int32_t> ids;
  std::int64_t query = 0, key = 0;
  LogitOptions logits;
};

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The features of the groups of that name at the position, or nothing.
std::vector<std::int64_t> GroupMembers(const GroupedGraph& grouped, std::string_view name,
                                       std::int64_t position) {
  std::vector<std::int64_t> members;
  for (const FeatureGroup& group : grouped.groups) {
    if (group.position != position || Trimmed(group.name) != Trimmed(name)) continue;
    members.insert(members.end(), group.features.begin(), group.features.end());
  }
  return members;
}

std::string GroupNames(const GroupedGraph& grouped, std::int64_t position) {
  std::string names;
  for (const FeatureGroup& group : grouped.groups) {
    if (group.position != position) continue;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", group.name);
  }
  return names;
}

// Which nodes a word means at a position: all, a group, a node's name.
std::vector<std::int64_t> FindNodes(const CarrierAnswer& answer, const std::string& word,
                                    std::int64_t position) {
  if (word == "all") return SourcesAt(answer.graph, position);
  std::vector<std::int64_t> members = GroupMembers(answer.grouped, word, position);
  if (!members.empty()) return members;
  try {
    return {FindNode(answer.graph, word, position)};
  } catch (const Error& error) {
    const std::string names = GroupNames(answer.grouped, position);
    Fail("{}: {}{}", answer.model->name, error.what(),
         names.empty() ? "" : fmt::format("; groups at {}: {}", position, names));
  }
}

CarrierEdge EdgeOf(const Options& o, const CarrierAnswer& answer, const Question& question) {
  CarrierEdge edge{.query = question.query,
                   .key = question.key,
                   .from = o.from,
                   .to = o.to,
                   .sources = FindNodes(answer, o.from, question.key),
                   .targets = {},
                   .logit = {}};
  const GraphNodes& nodes = answer.graph.nodes;
  for (const std::int64_t node : edge.sources) {
    const std::int64_t at =
        node < nodes.features ? answer.graph.features[node].position : nodes.PositionOf(node);
    if (at != question.key) {
      Fail("'{}' is at position {}, but --key is {}: one hop starts there", o.from, at,
           question.key);
    }
  }
  if (o.to == "logit") {
    edge.logit = answer.graph.logits[0];
    edge.to = NameOf(*edge.logit, answer.model->Words());
    return edge;
  }
  edge.targets = FindNodes(answer, o.to, question.query);
  for (const std::int64_t node : edge.targets) {
    if (node >= nodes.features) {
      Fail("'{}' is no target: expected logit, a feature like L4F31 or a group's name", o.to);
    }
    if (answer.graph.features[node].position != question.query) {
      Fail("'{}' is at position {}, but --query is {}: one hop ends there", o.to,
           answer.graph.features[node].position, question.query);
    }
  }
  return edge;
}

CarrierAnswer Answer(const Options& o, const TracedModel& model, const Question& question) {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  CarrierAnswer answer;
  answer.model = &model;
  FrozenOptions frozen{.checked = true};  // by LoadTraced
  if (o.first_position >= 0) frozen.first_position = o.first_position;
  answer.prompt = FreezePrompt(model.model, model.Features(), question.ids, frozen);
  LogitOptions logits = question.logits;
  logits.position = question.query;
  if (logits.tokens.empty() && !logits.contrast) logits.most = 1;
  answer.graph = Trace(answer.prompt, {.logits = logits, .max_features = o.max_features});
  answer.scores = ScoreGraph(answer.graph);
  answer.seconds["graph"] = seconds();
  std::vector<FeatureGroup> groups;
  if (!o.groups.empty()) {
    groups = ReadGroups(ReadJsonFile(o.groups), o.groups, answer.graph);
  } else {
    const PrunedGraph pruned = PruneGraph(answer.graph, answer.scores, o.prune);
    std::vector<ActiveFeature> kept;
    std::vector<std::uint8_t> mask(pruned.nodes.begin(),
                                   pruned.nodes.begin() + answer.graph.nodes.features);
    for (std::int64_t f = 0; f < answer.graph.nodes.features; ++f) {
      mask[f] =
          mask[f] && std::binary_search(answer.graph.traced.begin(), answer.graph.traced.end(), f);
      if (mask[f]) kept.push_back(answer.graph.features[f]);
    }
    groups = GroupFeatures(answer.graph, question.ids, mask,
                           MeaningsOf(answer.prompt, model.Index(), model.Words(), kept),
                           OriginsOf(answer.graph), model.Words());
  }
  answer.grouped = SumByGroups(answer.graph, std::move(groups), answer.scores.influence);
  CarrierOptions options = o.carriers;
  options.seed = o.common.seed;
  answer.carriers = FindCarriers(answer.prompt, answer.graph, answer.scores,
                                 EdgeOf(o, answer, question), options);
  answer.seconds["total"] = seconds();
  return answer;
}

std::vector<std::unique_ptr<TracedModel>> Load(const Options& o) {
  if (o.models.size() > 2) FailUsage("one or two models, not {}", o.models.size());
  if (!o.features.empty() && o.features.size() != o.models.size()) {
    FailUsage("--features needs one folder for each model: {} models, {} folders", o.models.size(),
              o.features.size());
  }
  std::vector<std::unique_ptr<TracedModel>> models;
  for (std::size_t i = 0; i < o.models.size(); ++i) {
    models.push_back(LoadTraced(o.models[i], o.features.empty() ? "" : o.features[i], ""));
  }
  return models;
}

// Different prompts of a task for one model, with begin-of-text in front. The key is where a prompt
// and its twin differ first, the query is the end.
std::vector<Question> TaskQuestions(const Options& o, const TracedModel& model) {
  if (!model.tokenizer) Fail("{}: tasks are texts, and the folder has no tokenizer", model.name);
  std::vector<Question> questions;
  std::set<std::vector<std::int32_t>> seen;
  for (const TaskPart part : {TaskPart::kHeldOut, TaskPart::kTaught}) {
    const TaskSet set = MakeTaskSet(ParseTask(o.task), *model.tokenizer,
                                    {.count = 40 * o.items, .seed = o.common.seed, .part = part});
    for (const TaskItem& item : set.items) {
      if (static_cast<std::int64_t>(questions.size()) == o.items) return questions;
      if (!seen.insert(item.clean).second) continue;
      Question& question = questions.emplace_back();
      const std::optional<std::int32_t> begin = model.model.config.begin_of_text;
      if (begin && item.clean[0] != *begin) question.ids.push_back(*begin);
      const auto differ =
          std::mismatch(item.clean.begin(), item.clean.end(), item.corrupted.begin()).first -
          item.clean.begin();
      question.key = static_cast<std::int64_t>(question.ids.size()) + differ;
      question.ids.insert(question.ids.end(), item.clean.begin(), item.clean.end());
      question.query = static_cast<std::int64_t>(question.ids.size()) - 1;
      question.logits.tokens = {item.answers[0]};
    }
  }
  return questions;
}

void RunTask(const Options& o) {
  const std::vector<std::unique_ptr<TracedModel>> models = Load(o);
  std::vector<CarrierAverages> averages;
  std::vector<std::string> names;
  Json list = Json::array();
  for (const auto& model : models) {
    const std::vector<Question> questions = TaskQuestions(o, *model);
    Progress bar(model->name, static_cast<std::int64_t>(questions.size()), "prompts");
    CarrierAverages& all = averages.emplace_back();
    names.push_back(model->name);
    for (std::size_t i = 0; i < questions.size(); ++i) {
      const CarrierAnswer answer = Answer(o, *model, questions[i]);
      AddTo(all, answer.carriers, answer.scores);
      bar.Update(static_cast<std::int64_t>(i) + 1);
    }
    Json json = ToJson(all, model->model.config.heads);
    json["model"] = model->name;
    json["features"] = model->features_name;
    list.push_back(std::move(json));
  }
  if (o.common.json) {
    return PrintJson({{"schema", "clearhead.carriers-task.1"},
                      {"task", o.task},
                      {"share", o.carriers.share},
                      {"from", o.from},
                      {"to", o.to},
                      {"models", std::move(list)}});
  }
  Print(AveragesText(names, averages, o.carriers.share, o.task));
}

Question PromptQuestion(const Options& o, const TracedModel& model, const std::string& folder) {
  const InputTokens input = ReadInput(o.input, FindModel(folder));
  if (input.batch != 1) FailUsage("one prompt at a time, not {}", input.batch);
  Question question{.ids = input.ids, .query = o.query, .key = o.key, .logits = {}};
  const auto T = static_cast<std::int64_t>(question.ids.size());
  if (question.query < 0) question.query = T - 1;
  if (question.query >= T || question.key > question.query) {
    Fail("--key {} and --query {} are no pair of a prompt of {} tokens: 0 <= key <= query <= {}",
         question.key, question.query, T, T - 1);
  }
  question.logits = o.targets.Read(model.Words());
  return question;
}

void Run(const Options& o) {
  if (!o.out.empty()) CheckFigurePath(o.out);
  if (!o.task.empty()) {
    if (!o.out.empty()) FailUsage("--out draws one prompt, not a task");
    if (o.key >= 0 || o.query >= 0 || !o.input.prompt.empty() || !o.input.ids.empty()) {
      FailUsage("--task brings its own prompts and positions");
    }
    return RunTask(o);
  }
  if (o.key < 0) FailUsage("--key is required: the position that is looked at");
  const std::vector<std::unique_ptr<TracedModel>> models = Load(o);
  std::vector<CarrierAnswer> answers;
  Json list = Json::array();
  for (std::size_t i = 0; i < models.size(); ++i) {
    answers.push_back(Answer(o, *models[i], PromptQuestion(o, *models[i], o.models[i])));
    list.push_back(ToJson(answers.back(), o.carriers.pairs));
  }
  if (!o.out.empty()) DrawCarrierFigure(FigureOf(answers, o.carriers.share), o.out);
  if (o.common.json) {
    const CarrierAnswer& first = answers[0];
    return PrintJson({{"schema", "clearhead.carriers.1"},
                      {"ids", first.prompt.ids},
                      {"tokens", TokenTexts(first.model->Words(), first.prompt.ids)},
                      {"query", first.carriers.edge.query},
                      {"key", first.carriers.edge.key},
                      {"share", o.carriers.share},
                      {"models", std::move(list)}});
  }
  Print(CarriersText(answers, o.carriers.share, o.pairs));
}

}  // namespace

void AddCarriers(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  Command* command = AddCommand(
      app, "carriers",
      "Which heads carry what is at one position to another: every edge split into heads exactly,\n"
      "the fewest heads for 80 %, why each looks there, checked by closing exactly these heads.\n"
      "Two models side by side; without features, paths from the embedding and the MLPs' outputs.",
      "clearhead carriers tale tale-sparse --features tale-features tale-sparse-features --prompt "
      "'<|endoftext|>The opposite of \"large\" is \"' --key 5 --out large-small.svg",
      options, Run);
  command->add_option("MODEL", o.models, "One or two models")->required();
  command->add_option("--features", o.features, "Their features, in the same order");
  o.input.Add(command);
  o.targets.Add(command);
  command->add_option("--key", o.key, "Position that is looked at")->check(NonNegativeNumber());
  command->add_option("--query", o.query, "Position that looks (default: the last)")
      ->check(NonNegativeNumber());
  command->add_option("--from", o.from,
                      "What is carried from there: all (default), token, position, a feature "
                      "(L0F12), err0, or a group's name");
  command->add_option("--to", o.to,
                      "Where to: logit (default), a feature at the query, or a group's name");
  command->add_option("--share", o.carriers.share, "Of the magnitudes (default: 0.8)")
      ->check(Range(0.0, 1.0));
  command
      ->add_option("--random", o.carriers.random_sets,
                   "Random sets of heads beside them (default: 20; 0: no check by closing)")
      ->check(NonNegativeNumber());
  command->add_option("--task", o.task, "Averages over a task's prompts instead (clearhead tasks)");
  command->add_option("--n", o.items, "Prompts of the task (default: 50)")->check(PositiveNumber());
  command
      ->add_option("--max-features", o.max_features,
                   "Features that are traced, by influence (default: 4000)")
      ->check(PositiveNumber());
  command->add_option("--groups", o.groups, "Groups of features from an edited groups.json");
  command
      ->add_option("--node-share", o.prune.nodes,
                   "Influence that the features in groups have (default: 0.95)")
      ->check(Range(0.0, 1.0));
  command->add_option("--out", o.out, "The figure: .svg, .pdf or .png");
  command
      ->add_option("--first-position", o.first_position,
                   "Features count from this position on (default: as they were trained)")
      ->check(NonNegativeNumber());
}

}  // namespace clearhead::cli
