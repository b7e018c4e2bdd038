// SPDX-License-Identifier: MIT
#include "viewer/page_api.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "heads/results_json.h"
#include "tasks/task_items.h"
#include "viewer/changed_run.h"
#include "viewer/feature_answers.h"
#include "viewer/frame.h"
#include "viewer/lens_answer.h"
#include "viewer/prompt_run.h"
#include "viewer/question_fields.h"

namespace clearhead {
namespace {

constexpr std::int64_t kExamples = 3;  // of each task

std::vector<HeadId> HeadsOf(const Json& json, const ViewedModel& viewed) {
  if (!json.is_array()) Fail("'ablate' must be a list of lists of heads, one list for each model");
  std::vector<HeadId> heads;
  for (const Json& head : json) heads.push_back(HeadField(head, viewed));
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

void CheckFields(const Json& json, QuestionKind kind) {
  if (!json.is_object()) Fail("the question must be a JSON object");
  constexpr std::array<std::string_view, 5> kAlways = {"prompt", "ablate", "open_gates", "client",
                                                       "number"};
  for (const auto& [name, value] : json.items()) {
    const bool known =
        std::find(kAlways.begin(), kAlways.end(), name) != kAlways.end() ||
        (kind == QuestionKind::kRun && (name == "cells" || name == "likeliest")) ||
        (kind == QuestionKind::kHead && name == "head") ||
        (kind == QuestionKind::kToken && name == "position") ||
        (kind == QuestionKind::kFeatures && name == "strongest") ||
        (kind == QuestionKind::kChanged &&
         (name == "model" || name == "cut" || name == "features" || name == "likeliest")) ||
        (kind == QuestionKind::kLens &&
         (name == "model" || name == "position" || name == "target" || name == "likeliest"));
    if (!known) Fail("'{}' is not a field of this question", name.substr(0, 40));
  }
}

std::int64_t HeadCount(const ViewedModel& viewed) {
  return viewed.model.config.layers * viewed.model.config.heads;
}

bool HasHead(const ViewedModel& viewed, HeadId head) {
  return head.layer < viewed.model.config.layers && head.head < viewed.model.config.heads;
}

void CheckSize(const PageQuestion& q, std::int64_t most) {
  if (static_cast<std::int64_t>(q.ids.size()) > most) {
    Fail("the prompt has {} tokens, more than one answer to this question holds; take at most {}",
         q.ids.size(), most);
  }
}

// Whole maps of one head, of every model that has it.
void CheckHeadSize(const PageQuestion& q, const ModelSet& set) {
  const std::int64_t maps =
      std::count_if(set.models.begin(), set.models.end(),
                    [&](const ViewedModel& viewed) { return HasHead(viewed, q.head); });
  std::int64_t most = 0;
  while (maps * (most + 1) * (most + 1) <= kMaxMapFloats) ++most;
  CheckSize(q, most);
}

// A row and a column of one position in every head.
void CheckTokenSize(const PageQuestion& q, const ModelSet& set) {
  std::int64_t heads = 0;
  for (const ViewedModel& viewed : set.models) heads += HeadCount(viewed);
  CheckSize(q, kMaxMapFloats / (2 * heads));
}

PromptRunOptions OptionsFor(const PageQuestion& q, std::size_t model, const CancelQuestion& stop) {
  return {.ablated = q.ablated[model], .open_gates = q.open_gates, .cancelled = stop};
}

Json TokensOf(const ModelSet& set, const PageQuestion& q) {
  Json tokens = Json::array();
  for (const std::int32_t id : q.ids) tokens.push_back(set.TokenText(id));
  return tokens;
}

Json PredictionsJson(const ModelSet& set, const PromptRun& run) {
  Json positions = Json::array();
  for (const PositionPrediction& position : run.predictions) {
    positions.push_back({{"loss", position.loss ? Json(*position.loss) : Json(nullptr)},
                         {"likeliest", LikeliestJson(set, position.likeliest)}});
  }
  return positions;
}

Json LossJson(const PromptRun& run) { return run.loss ? Json(*run.loss) : Json(nullptr); }

Json ModelJson(const ModelSet& set, std::size_t m, const PageQuestion& q, const PromptRun& run) {
  Json ablated = Json::array(), heads = Json::array();
  for (const HeadId head : q.ablated[m]) ablated.push_back(ToText(head));
  for (const HeadResult& head : run.heads) heads.push_back(ToJson(head));
  return {{"label", set.models[m].label},
          {"ablated", std::move(ablated)},
          {"loss", LossJson(run)},
          {"open_edges_per_query", run.summary.open_edges_per_query},
          {"edge_fraction", run.summary.edge_fraction},
          {"predictions", PredictionsJson(set, run)},
          {"heads", std::move(heads)}};
}

}  // namespace

PromptText ParsePrompt(const Json& question, const ModelSet& set) {
  if (!question.contains("prompt")) Fail("the question has no 'prompt'");
  PromptText prompt{.text = Text(question["prompt"], "prompt"), .ids = {}};
  if (prompt.text.size() > static_cast<std::size_t>(kMaxPromptBytes)) {
    Fail("the prompt has {} bytes, at most {} are taken", prompt.text.size(), kMaxPromptBytes);
  }
  prompt.ids = set.tokenizer.EncodePrompt(prompt.text);
  if (prompt.ids.empty()) Fail("the prompt is empty; type a text");
  if (static_cast<std::int64_t>(prompt.ids.size()) > set.Longest()) {
    Fail("the prompt has {} tokens, the models take {}", prompt.ids.size(), set.Longest());
  }
  return prompt;
}

std::size_t ModelField(const Json& question, const ModelSet& set) {
  if (!question.contains("model")) return 0;
  return static_cast<std::size_t>(
      WholeNumber(question["model"], "model", 0, static_cast<std::int64_t>(set.models.size()) - 1));
}

HeadId HeadField(const Json& json, const ViewedModel& viewed) {
  const std::string& text = Text(json, "head");
  const std::optional<HeadId> head = text.size() <= 32 ? ParseHead(text) : std::nullopt;
  const ModelConfig& config = viewed.model.config;
  if (!head || head->layer < 0 || head->layer >= config.layers || head->head < 0 ||
      head->head >= config.heads) {
    Fail("'{}' is no head of {}, which has {} layers of {} heads; heads are written L0H0", text,
         viewed.label, config.layers, config.heads);
  }
  return *head;
}

PageQuestion ParseQuestion(QuestionKind kind, std::string_view body, const ModelSet& set) {
  const Json json = ParseJson(body, "question");
  CheckFields(json, kind);
  PageQuestion q;
  q.ablated.resize(set.models.size());
  PromptText prompt = ParsePrompt(json, set);
  q.prompt = std::move(prompt.text);
  q.ids = std::move(prompt.ids);
  if (json.contains("ablate")) {
    const Json& lists = json["ablate"];
    if (!lists.is_array() || lists.size() != set.models.size()) {
      Fail("'ablate' must be a list of lists of heads, one list for each model");
    }
    for (std::size_t m = 0; m < lists.size(); ++m) q.ablated[m] = HeadsOf(lists[m], set.models[m]);
  }
  if (json.contains("open_gates")) {
    if (!json["open_gates"].is_boolean()) Fail("'open_gates' must be true or false");
    q.open_gates = json["open_gates"].get<bool>();
  }
  const std::int64_t most = MostCells(set, static_cast<std::int64_t>(q.ids.size()));
  q.cells = std::min(q.cells, most);
  if (json.contains("cells")) {
    q.cells = WholeNumber(json["cells"], "cells", 1, kMaxCells);
    if (std::min(q.cells, static_cast<std::int64_t>(q.ids.size())) > most) {
      Fail("maps of {} cells a side are more than one answer holds; at most {} fit", q.cells, most);
    }
  }
  if (json.contains("likeliest")) {
    q.likeliest = WholeNumber(json["likeliest"], "likeliest", 1, kMaxLikeliest);
  }
  if (json.contains("strongest")) {
    q.strongest = WholeNumber(json["strongest"], "strongest", 1, kMaxStrongest);
  }
  if (kind == QuestionKind::kHead) {
    if (!json.contains("head")) Fail("the question has no 'head'");
    // Models may differ in shape: a head of any of them will do.
    const auto most = std::max_element(
        set.models.begin(), set.models.end(),
        [](const ViewedModel& a, const ViewedModel& b) { return HeadCount(a) < HeadCount(b); });
    q.head = HeadField(json["head"], *most);
    CheckHeadSize(q, set);
  }
  if (kind == QuestionKind::kToken) {
    if (!json.contains("position")) Fail("the question has no 'position'");
    q.position =
        WholeNumber(json["position"], "position", 0, static_cast<std::int64_t>(q.ids.size()) - 1);
    CheckTokenSize(q, set);
  }
  if (kind == QuestionKind::kChanged) ParseChanges(json, set, &q);
  if (kind == QuestionKind::kLens) ParseLens(json, set, &q);
  return q;
}

std::int64_t MostCells(const ModelSet& set, std::int64_t length) {
  std::int64_t heads = 0;
  for (const ViewedModel& viewed : set.models) heads += HeadCount(viewed);
  std::int64_t cells = std::min(length, kMaxCells);
  while (cells > 1 && heads * cells * cells > kMaxMapFloats) --cells;
  return cells;
}

Json Overview(const ModelSet& set, const std::vector<ResultFile>& results) {
  Json models = Json::array(), tasks = Json::array(), files = Json::array();
  for (const ViewedModel& viewed : set.models) {
    const Model& model = viewed.model;
    const bool gated = model.config.attention == AttentionKind::kGated;
    models.push_back({{"label", viewed.label},
                      {"layers", model.config.layers},
                      {"heads_per_layer", model.config.heads},
                      {"width", model.config.width},
                      {"parameters", model.config.ParameterCount()},
                      {"positions", model.config.positions},
                      {"attention", gated ? "gated" : "softmax"},
                      {"features", FeaturesInfo(viewed)}});
  }
  for (const TaskInfo& info : AllTasks()) {
    TaskSet items;
    try {
      items = MakeTaskSet(info.task, set.tokenizer, {.count = kExamples});
    } catch (const Error&) {
      continue;  // this tokenizer cannot express it
    }
    Json examples = Json::array();
    for (const TaskItem& item : items.items) {
      if (static_cast<std::int64_t>(item.clean.size()) > set.Longest()) continue;
      Json answers = Json::array();
      for (const std::int32_t id : item.answers) answers.push_back(set.TokenText(id));
      examples.push_back({{"prompt", item.clean_text}, {"answers", std::move(answers)}});
    }
    if (examples.empty()) continue;
    tasks.push_back({{"name", info.name},
                     {"description", info.description},
                     {"examples", std::move(examples)}});
  }
  for (const ResultFile& file : results) {
    files.push_back({{"name", file.name}, {"schema", file.schema}});
  }
  return {{"schema", "clearhead.overview.1"},
          {"models", std::move(models)},
          {"longest", set.Longest()},
          {"tasks", std::move(tasks)},
          {"results", std::move(files)}};
}

std::string RunFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled) {
  std::vector<PromptRun> runs;
  Json models = Json::array();
  std::vector<FrameArray> arrays;
  for (std::size_t m = 0; m < set.models.size(); ++m) {
    PromptRunOptions options = OptionsFor(q, m, cancelled);
    options.cells = q.cells;
    options.likeliest = q.likeliest;
    runs.push_back(RunPrompt(set.models[m].model, q.ids, options));
    models.push_back(ModelJson(set, m, q, runs[m]));
  }
  for (std::size_t m = 0; m < runs.size(); ++m) {
    const ModelConfig& config = set.models[m].model.config;
    arrays.push_back({fmt::format("maps.{}", m),
                      {config.layers, config.heads, runs[m].cells, runs[m].cells},
                      runs[m].maps});
  }
  return MakeFrame({{"schema", "clearhead.run.1"},
                    {"prompt", q.prompt},
                    {"ids", q.ids},
                    {"tokens", TokensOf(set, q)},
                    {"open_gates", q.open_gates},
                    {"tokens_per_cell", runs[0].tokens_per_cell},
                    {"models", std::move(models)}},
                   arrays);
}

// Every model on the question, for one view of it: no maps of all heads, no predictions.
template <typename Choose>
std::vector<PromptRun> RunForDetail(const ModelSet& set, const PageQuestion& q,
                                    const CancelQuestion& cancelled, const Choose& choose) {
  std::vector<PromptRun> runs;
  for (std::size_t m = 0; m < set.models.size(); ++m) {
    PromptRunOptions options = OptionsFor(q, m, cancelled);
    options.heads = options.predictions = false;
    choose(options);
    runs.push_back(RunPrompt(set.models[m].model, q.ids, options));
  }
  return runs;
}

std::string HeadFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled) {
  const auto T = static_cast<std::int64_t>(q.ids.size());
  const std::vector<PromptRun> runs = RunForDetail(
      set, q, cancelled, [&](PromptRunOptions& options) { options.whole_head = q.head; });
  std::vector<FrameArray> arrays;
  for (std::size_t m = 0; m < runs.size(); ++m) {
    if (runs[m].whole.empty()) continue;  // this model has no such head
    arrays.push_back({fmt::format("map.{}", m), {T, T}, runs[m].whole});
  }
  return MakeFrame({{"schema", "clearhead.head.1"}, {"head", ToText(q.head)}}, arrays);
}

std::string TokenFrame(const ModelSet& set, const PageQuestion& q,
                       const CancelQuestion& cancelled) {
  const auto T = static_cast<std::int64_t>(q.ids.size());
  const std::vector<PromptRun> runs = RunForDetail(
      set, q, cancelled, [&](PromptRunOptions& options) { options.position = q.position; });
  std::vector<FrameArray> arrays;
  for (std::size_t m = 0; m < runs.size(); ++m) {
    const ModelConfig& config = set.models[m].model.config;
    arrays.push_back({fmt::format("reads.{}", m), {config.layers, config.heads, T}, runs[m].reads});
    arrays.push_back(
        {fmt::format("read_by.{}", m), {config.layers, config.heads, T}, runs[m].read_by});
  }
  return MakeFrame({{"schema", "clearhead.token.1"}, {"position", q.position}}, arrays);
}

Json LikeliestJson(const ModelSet& set, const std::vector<Prediction>& likeliest) {
  Json list = Json::array();
  for (const auto& [id, probability] : likeliest) {
    list.push_back({{"id", id}, {"token", set.TokenText(id)}, {"probability", probability}});
  }
  return list;
}

Json PredictionsOf(const ModelSet& set, const PromptRun& run) {
  return {{"loss", LossJson(run)}, {"predictions", PredictionsJson(set, run)}};
}

}  // namespace clearhead
