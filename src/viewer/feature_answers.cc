// SPDX-License-Identifier: MIT
#include "viewer/feature_answers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/error.h"
#include "features/feature_card.h"
#include "features/feature_search.h"
#include "viewer/frame.h"
#include "viewer/prompt_run.h"
#include "viewer/question_fields.h"

namespace clearhead {
namespace {

constexpr std::size_t kShortList = 3;  // promoted tokens beside a label

std::int64_t EntriesOfEach(const ModelSet& set, const PageQuestion& q) {
  std::int64_t cells = 0;
  for (const ViewedModel& viewed : set.models) {
    if (viewed.features) cells += viewed.features->transcoder.config.layers;
  }
  cells *= static_cast<std::int64_t>(q.ids.size());
  return std::clamp<std::int64_t>(kMaxFeatureEntries / std::max<std::int64_t>(cells, 1), 1,
                                  q.strongest);
}

// What the page writes beside a feature's name.
Json ShortLabel(const ModelSet& set, const FeatureIndex& index, FeatureId id) {
  const FeatureFacts facts = index.Read(id);
  Json promotes = Json::array();
  for (std::size_t k = 0; k < kShortList; ++k) {
    promotes.push_back(set.TokenText(facts.tokens.promoted[k].token));
  }
  const Json label = ToJson(set.tokenizer, facts.label);
  return {{"text", label["text"]},
          {"kind", label["kind"]},
          {"share", label["share"]},
          {"largest", facts.largest},
          {"fired", index.info().tokens == 0 ? 0.0
                                             : static_cast<double>(facts.fired) /
                                                   static_cast<double>(index.info().tokens)},
          {"promotes", std::move(promotes)}};
}

}  // namespace

const ViewedFeatures& FeaturesOf(const ModelSet& set, std::size_t model) {
  const ViewedModel& viewed = set.models[model];
  if (!viewed.features) {
    Fail("{} was given no features; start with --features DIR", viewed.label);
  }
  return *viewed.features;
}

void RoundNumbers(Json* json) {
  if (json->is_number_float()) {
    const double value = json->get<double>();
    if (value == 0.0 || !std::isfinite(value)) return;
    const double scale = std::pow(10.0, 4.0 - std::floor(std::log10(std::abs(value))));
    if (!std::isfinite(scale)) return;
    *json = std::round(value * scale) / scale;
    return;
  }
  if (!json->is_structured()) return;
  for (Json& element : *json) RoundNumbers(&element);
}

Json FeaturesInfo(const ViewedModel& viewed) {
  if (!viewed.features) return nullptr;
  const TranscoderConfig& config = viewed.features->transcoder.config;
  Json json = {{"kind", NameOf(config.kind)},
               {"activation", NameOf(config.activation)},
               {"per_layer", config.features},
               {"index", nullptr}};
  if (viewed.features->index) {
    json["index"] = {{"tokens", viewed.features->index->info().tokens}};
  }
  return json;
}

std::vector<std::optional<PromptFeatures>> RunFeatures(const ModelSet& set, const PageQuestion& q,
                                                       const CancelQuestion& cancelled) {
  std::vector<std::optional<PromptFeatures>> runs;
  for (std::size_t m = 0; m < set.models.size(); ++m) {
    runs.emplace_back();
    const ViewedModel& viewed = set.models[m];
    if (!viewed.features) continue;
    PromptFeaturesOptions options{.strongest = EntriesOfEach(set, q), .open_gates = q.open_gates};
    for (const HeadId head : q.ablated[m]) {
      options.interventions.push_back({.tap = {Tap::kZ, head.layer}, .heads = {head.head}});
    }
    options.between_layers = [&] {
      if (cancelled && cancelled()) throw Cancelled("the run was cancelled");
    };
    runs.back() = FeaturesOfPrompt(viewed.model, viewed.features->transcoder, q.ids, options);
  }
  return runs;
}

std::string FeaturesFrame(const ModelSet& set, const PageQuestion& q,
                          const std::vector<std::optional<PromptFeatures>>& runs) {
  const auto T = static_cast<std::int64_t>(q.ids.size());
  const std::int64_t K = EntriesOfEach(set, q);
  Json tokens = Json::array(), models = Json::array();
  for (const std::int32_t id : q.ids) tokens.push_back(set.TokenText(id));
  std::vector<std::vector<float>> values;
  values.reserve(4 * runs.size());  // spans point into it
  std::vector<FrameArray> arrays;
  for (std::size_t m = 0; m < runs.size(); ++m) {
    if (!runs[m]) {
      models.push_back(nullptr);
      continue;
    }
    const std::int64_t L = runs[m]->layers;
    std::vector<float>& active = values.emplace_back(static_cast<std::size_t>(L * T));
    std::vector<float>& feature = values.emplace_back(static_cast<std::size_t>(L * T * K), -1.0f);
    std::vector<float>& value = values.emplace_back(static_cast<std::size_t>(L * T * K));
    std::vector<float>& written = values.emplace_back(static_cast<std::size_t>(L * T * K));
    Json labels = Json::object();
    for (std::int64_t l = 0; l < L; ++l) {
      for (std::int64_t t = 0; t < T; ++t) {
        const FiringCell& cell = runs[m]->At(l, t);
        active[static_cast<std::size_t>(l * T + t)] = static_cast<float>(cell.active);
        for (std::size_t k = 0; k < cell.strongest.size(); ++k) {
          const auto at = static_cast<std::size_t>((l * T + t) * K) + k;
          const FeatureId id{l, cell.strongest[k].feature};
          feature[at] =
              static_cast<float>(id.feature);  // below 2^24, or they are not all told apart
          value[at] = cell.strongest[k].value;
          written[at] = cell.strongest[k].written;
          const std::string name = ToText(id);
          const auto& index = set.models[m].features->index;
          if (index && !labels.contains(name)) labels[name] = ShortLabel(set, *index, id);
        }
      }
    }
    RoundNumbers(&labels);
    arrays.push_back({fmt::format("active.{}", m), {L, T}, active});
    arrays.push_back({fmt::format("feature.{}", m), {L, T, K}, feature});
    arrays.push_back({fmt::format("value.{}", m), {L, T, K}, value});
    arrays.push_back({fmt::format("written.{}", m), {L, T, K}, written});
    models.push_back(
        {{"label", set.models[m].label}, {"layers", L}, {"labels", std::move(labels)}});
  }
  return MakeFrame({{"schema", "clearhead.prompt-features.1"},
                    {"prompt", q.prompt},
                    {"tokens", std::move(tokens)},
                    {"strongest", K},
                    {"models", std::move(models)}},
                   arrays);
}

FeatureQuestion ParseFeatureQuestion(FeatureQuestionKind kind, std::string_view body,
                                     const ModelSet& set) {
  const Json json = ParseJson(body, "question");
  if (!json.is_object()) Fail("the question must be a JSON object");
  constexpr std::array<std::string_view, 3> kAlways = {"model", "client", "number"};
  for (const auto& [name, value] : json.items()) {
    const bool known =
        std::find(kAlways.begin(), kAlways.end(), name) != kAlways.end() ||
        (kind == FeatureQuestionKind::kCard ? name == "feature" : name == "text" || name == "most");
    if (!known) Fail("'{}' is not a field of this question", name.substr(0, 40));
  }
  FeatureQuestion q;
  if (json.contains("model")) {
    q.model = static_cast<std::size_t>(
        WholeNumber(json["model"], "model", 0, static_cast<std::int64_t>(set.models.size()) - 1));
  }
  const ViewedFeatures& features = FeaturesOf(set, q.model);
  if (kind == FeatureQuestionKind::kCard) {
    if (!json.contains("feature")) Fail("the question has no 'feature'");
    const std::string& text = Text(json["feature"], "feature");
    if (text.size() > 32) Fail("'feature' is too long; a feature is written like L3F512");
    q.feature = ParseFeatureOf(features.transcoder.config, text);
    return q;
  }
  if (!features.index) {
    Fail("the features of {} have no index to search; `clearhead features index` makes one",
         set.models[q.model].label);
  }
  if (!json.contains("text")) Fail("the question has no 'text'");
  q.text = Text(json["text"], "text");
  if (q.text.size() > static_cast<std::size_t>(kMaxSearchBytes)) {
    Fail("'text' has {} bytes, at most {} are looked for", q.text.size(), kMaxSearchBytes);
  }
  if (json.contains("most")) q.most = WholeNumber(json["most"], "most", 1, kMaxFound);
  return q;
}

Json CardAnswer(const ModelSet& set, std::size_t model, FeatureId feature) {
  const ViewedFeatures& features = FeaturesOf(set, model);
  Json json = ToJson(set.tokenizer,
                     CardOf(set.models[model].model, features.transcoder,
                            features.index ? &*features.index : nullptr, set.tokenizer, feature));
  RoundNumbers(&json);
  return json;
}

Json FindAnswer(const ModelSet& set, const FeatureQuestion& q) {
  const FeatureIndex& index = *FeaturesOf(set, q.model).index;
  const FoundFeatures found = SearchFeatures(index, set.tokenizer, q.text, q.most);
  Json list = Json::array();
  for (const FoundFeature& feature : found.features) {
    list.push_back({{"feature", ToText(feature.id)},
                    {"where", NameOf(feature.where)},
                    {"label", ShortLabel(set, index, feature.id)}});
  }
  RoundNumbers(&list);
  return {{"schema", "clearhead.features-found.1"},
          {"text", q.text},
          {"total", found.total},
          {"features", std::move(list)}};
}

Json CardsOf(const ModelSet& set, std::size_t model,
             const std::vector<std::vector<std::optional<PromptFeatures>>>& prompts,
             std::int64_t most) {
  std::map<FeatureId, float> strength;
  for (const auto& runs : prompts) {
    if (!runs[model]) continue;
    for (std::int64_t l = 0; l < runs[model]->layers; ++l) {
      for (std::int64_t t = 0; t < runs[model]->length; ++t) {
        for (const FiringFeature& feature : runs[model]->At(l, t).strongest) {
          float& known = strength[{l, feature.feature}];
          known = std::max(known, std::abs(feature.written));
        }
      }
    }
  }
  std::vector<std::pair<FeatureId, float>> order(strength.begin(), strength.end());
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (static_cast<std::int64_t>(order.size()) > most) order.resize(static_cast<std::size_t>(most));
  Json cards = Json::object();
  for (const auto& [id, written] : order) {
    Json card = CardAnswer(set, model, id);
    card.erase("schema");
    cards[ToText(id)] = std::move(card);
  }
  return {{"schema", "clearhead.feature-cards.1"}, {"model", model}, {"cards", std::move(cards)}};
}

}  // namespace clearhead
