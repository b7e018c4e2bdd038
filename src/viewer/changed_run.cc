// SPDX-License-Identifier: MIT
#include "viewer/changed_run.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "core/error.h"
#include "viewer/feature_answers.h"
#include "viewer/frame.h"
#include "viewer/question_fields.h"

namespace clearhead {
namespace {

const Json& ChangeList(const Json& json, const char* name) {
  if (!json[name].is_array() || json[name].size() > kMaxChanges) {
    Fail("'{}' must be a list of at most {} changes", name, kMaxChanges);
  }
  return json[name];
}

// The fields of one change: those of `names`, and no other.
void CheckChange(const Json& change, const char* list, std::initializer_list<const char*> names) {
  if (!change.is_object()) Fail("'{}' must be a list of objects", list);
  for (const auto& [name, value] : change.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      Fail("'{}' is not a field of '{}'", name.substr(0, 40), list);
    }
  }
}

// {"head": "L2H3", "query": 8, "key": 5}
AttentionCell CellOf(const Json& json, const ViewedModel& viewed, std::int64_t length) {
  CheckChange(json, "cut", {"head", "query", "key"});
  for (const char* name : {"head", "query", "key"}) {
    if (!json.contains(name)) Fail("'cut' lacks '{}'", name);
  }
  AttentionCell cell{.head = HeadField(json["head"], viewed)};
  cell.query = WholeNumber(json["query"], "query", 0, length - 1);
  cell.key = WholeNumber(json["key"], "key", 0, cell.query);
  return cell;
}

// {"feature": "L3F512", "set": 4.0} or "scale"; with "position" there, else wherever features
// count.
FeatureIntervention FeatureChangeOf(const Json& json, const TranscoderConfig& config,
                                    std::int64_t length) {
  CheckChange(json, "features", {"feature", "set", "scale", "position"});
  if (!json.contains("feature")) Fail("'features' lacks 'feature'");
  if (json.contains("set") == json.contains("scale")) {
    Fail("a change of a feature has either 'set' or 'scale'");
  }
  const std::string& name = Text(json["feature"], "feature");
  if (name.size() > 32) Fail("'feature' is too long; a feature is written like L3F512");
  const bool scale = json.contains("scale");
  const Json& value = json[scale ? "scale" : "set"];
  if (!value.is_number() || !(std::abs(value.get<double>()) <= kMaxFeatureValue)) {
    Fail("'{}' is {}; it must be a number from -{} to {}", scale ? "scale" : "set",
         ToText(value, -1).substr(0, 40), kMaxFeatureValue, kMaxFeatureValue);
  }
  FeatureIntervention change{.feature = ParseFeatureOf(config, name),
                             .change = scale ? FeatureChange::kScale : FeatureChange::kSet,
                             .value = value.get<float>(),
                             .positions = {{.first = config.first_position}}};
  if (json.contains("position")) {
    const std::int64_t at = WholeNumber(json["position"], "position", 0, length - 1);
    change.positions = {{.first = at, .last = at}};
  }
  return change;
}

}  // namespace

void ParseChanges(const Json& json, const ModelSet& set, PageQuestion* q) {
  const auto length = static_cast<std::int64_t>(q->ids.size());
  q->model = ModelField(json, set);
  if (json.contains("cut")) {
    for (const Json& cell : ChangeList(json, "cut")) {
      q->cut.push_back(CellOf(cell, set.models[q->model], length));
    }
  }
  if (json.contains("features")) {
    const TranscoderConfig& config = FeaturesOf(set, q->model).transcoder.config;
    for (const Json& change : ChangeList(json, "features")) {
      q->features.push_back(FeatureChangeOf(change, config, length));
    }
  }
}

std::string ChangedFrame(const ModelSet& set, const PageQuestion& q,
                         const CancelQuestion& cancelled) {
  const ViewedModel& viewed = set.models[q.model];
  PromptRunOptions options{.ablated = q.ablated[q.model],
                           .open_gates = q.open_gates,
                           .likeliest = q.likeliest,
                           .cancelled = cancelled,
                           .heads = false};
  const PromptRun before = RunPrompt(viewed.model, q.ids, options);
  options.cut = q.cut;
  options.features = q.features;
  if (viewed.features) options.transcoder = &viewed.features->transcoder;
  const PromptRun after = RunPrompt(viewed.model, q.ids, options);
  return MakeFrame({{"schema", "clearhead.changed-run.1"},
                    {"prompt", q.prompt},
                    {"model", q.model},
                    {"before", PredictionsOf(set, before)},
                    {"after", PredictionsOf(set, after)}},
                   {});
}

}  // namespace clearhead
