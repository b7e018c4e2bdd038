// SPDX-License-Identifier: MIT
#include "viewer/trace_answers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "features/feature_card.h"
#include "features/head_split.h"
#include "features/node_names.h"
#include "features/query_key_reasons.h"
#include "features/stream_vectors.h"
#include "model/head_weights.h"
#include "viewer/feature_answers.h"
#include "viewer/frame.h"
#include "viewer/prompt_run.h"
#include "viewer/question_fields.h"

namespace clearhead {
namespace {

constexpr std::size_t kMaxNameBytes = 40;  // of a node

void CheckFields(const Json& json, TraceQuestionKind kind) {
  if (!json.is_object()) Fail("the question must be a JSON object");
  constexpr std::array<std::string_view, 4> kAlways = {"model", "prompt", "client", "number"};
  for (const auto& [name, value] : json.items()) {
    const bool known = std::find(kAlways.begin(), kAlways.end(), name) != kAlways.end() ||
                       (kind == TraceQuestionKind::kCarriers && (name == "from" || name == "to")) ||
                       (kind == TraceQuestionKind::kReasons &&
                        (name == "head" || name == "query" || name == "key"));
    if (!known) Fail("'{}' is not a field of this question", name.substr(0, 40));
  }
}

const Json& Field(const Json& json, const char* name) {
  if (!json.contains(name)) Fail("the question has no '{}'", name);
  return json[name];
}

std::string NodeField(const Json& json, const char* name) {
  const std::string& text = Text(Field(json, name), name);
  if (text.size() > kMaxNameBytes) Fail("'{}' is too long for the name of a node", name);
  return text;
}

Json LogitsJson(const ModelSet& set, const TracedPrompt& traced) {
  Json logits = Json::array();
  for (const LogitTarget& logit : traced.graph.logits) {
    logits.push_back({{"id", logit.token},
                      {"token", set.TokenText(logit.token)},
                      {"probability", logit.probability},
                      {"value", logit.value},
                      {"position", logit.position}});
  }
  return logits;
}

// A term of the stream, with the label of a feature.
Json TermJson(const ModelSet& set, std::size_t model, const StreamTerm& term) {
  Json json = {{"kind", NameOf(term.kind)}, {"name", NameOf(term, &set.tokenizer)}};
  const auto& index = set.models[model].features->index;
  if (term.kind == StreamTermKind::kFeature && index) {
    json["label"] = LabelText(set.tokenizer, index->Label({term.layer, term.index}));
  }
  return json;
}

Json SumsJson(const ModelSet& set, std::size_t model, const std::vector<StreamTerm>& terms,
              const std::vector<double>& sums) {
  Json list = Json::array();
  for (const std::int64_t i : RankByMagnitude(sums)) {
    if (static_cast<std::int64_t>(list.size()) == kReasonPairs) break;
    Json term = TermJson(set, model, terms[i]);
    term["value"] = sums[i];
    list.push_back(std::move(term));
  }
  return list;
}

}  // namespace

TraceQuestion ParseTraceQuestion(TraceQuestionKind kind, std::string_view body,
                                 const ModelSet& set) {
  const Json json = ParseJson(body, "question");
  CheckFields(json, kind);
  TraceQuestion q;
  q.model = ModelField(json, set);
  FeaturesOf(set, q.model);
  q.prompt = ParsePrompt(json, set);
  const auto length = static_cast<std::int64_t>(q.prompt.ids.size());
  if (length > kMaxTraceTokens) {
    Fail(
        "the prompt has {} tokens; a trace of at most {} is made for the page, `clearhead trace` "
        "makes longer ones",
        length, kMaxTraceTokens);
  }
  if (kind == TraceQuestionKind::kCarriers) {
    q.from = NodeField(json, "from");
    q.to = NodeField(json, "to");
  }
  if (kind == TraceQuestionKind::kReasons) {
    q.head = HeadField(Field(json, "head"), set.models[q.model]);
    q.query = WholeNumber(Field(json, "query"), "query", 0, length - 1);
    q.key = WholeNumber(Field(json, "key"), "key", 0, q.query);
  }
  return q;
}

std::string TraceFrame(const ModelSet& set, std::size_t model, const std::string& prompt,
                       const TracedPrompt& traced) {
  const AttributionGraph& graph = traced.graph;
  Json tokens = Json::array(), features = Json::array(), groups = Json::array();
  for (const std::int32_t id : traced.run.ids) tokens.push_back(set.TokenText(id));
  std::vector<std::int64_t> place(graph.features.size(), -1);
  for (std::size_t i = 0; i < traced.shown.size(); ++i) {
    const ActiveFeature& feature = graph.features[traced.shown[i]];
    const FeatureMeaning& meaning = traced.meanings[i];
    place[traced.shown[i]] = static_cast<std::int64_t>(i);
    features.push_back({{"name", ToText(FeatureId{feature.layer, feature.feature})},
                        {"layer", feature.layer},
                        {"position", feature.position},
                        {"activation", feature.activation},
                        {"label", meaning.label},
                        {"promotes", set.TokenText(meaning.promotes)}});
  }
  for (const FeatureGroup& group : traced.groups) {
    Json members = Json::array();
    for (const std::int64_t f : group.features) members.push_back(place[f]);
    groups.push_back({{"name", group.name},
                      {"position", group.position},
                      {"first_layer", group.first_layer},
                      {"last_layer", group.last_layer},
                      {"features", std::move(members)}});
  }
  const GroupedGraph& singles = traced.singles;
  const std::vector<float> influence(singles.influence.begin(), singles.influence.end());
  const std::vector<float> targets(singles.targets.begin(), singles.targets.end());
  const std::vector<FrameArray> arrays = {
      {"edges", {singles.rows(), singles.sources()}, singles.edges.span()},
      {"targets", {singles.rows()}, targets},
      {"influence", {singles.sources()}, influence}};
  Json header = {{"schema", "clearhead.prompt-trace.1"},
                 {"model", model},
                 {"label", set.models[model].label},
                 {"prompt", prompt},
                 {"tokens", std::move(tokens)},
                 {"layers", traced.run.config().layers},
                 {"heads_per_layer", traced.run.config().heads},
                 {"positions", singles.positions},
                 {"active", graph.nodes.features},
                 {"traced", graph.traced.size()},
                 {"replacement", traced.scores.replacement},
                 {"completeness", traced.scores.completeness},
                 {"logits", LogitsJson(set, traced)},
                 {"features", std::move(features)},
                 {"groups", std::move(groups)}};
  RoundNumbers(&header);
  return MakeFrame(std::move(header), arrays);
}

Json CarriersAnswer(const TracedPrompt& traced, const std::string& from, const std::string& to) {
  const TraceNode source = FindSource(traced, from), target = FindTarget(traced, to);
  if (source.position > target.position) {
    Fail("'{}' is at position {}, '{}' at {}: nothing flows back", from, source.position, to,
         target.position);
  }
  const AttributionGraph& graph = traced.graph;
  const StreamVectors reads = target.logit ? ReadBy(traced.run, *target.logit)
                                           : ReadBy(traced.run, graph.features, target.nodes);
  const HeadSplit split =
      SplitEdge(traced.run, WrittenBy(traced.run, graph.features, graph.nodes, source.nodes), reads,
                target.position, source.position);
  const std::int64_t T = traced.run.length(), H = traced.run.config().heads;
  double total = 0.0;
  for (const double value : split.one_hop) total += std::abs(value);
  Json heads = Json::array();
  for (const std::int64_t i : RankByMagnitude(split.one_hop)) {
    if (split.one_hop[i] == 0.0) break;
    const FrozenLayer& layer = traced.run.layers[i / H];
    heads.push_back(
        {{"head", ToText(HeadId{i / H, i % H})},
         {"value", split.one_hop[i]},
         {"share", std::abs(split.one_hop[i]) / total},
         {"all_paths", split.heads[i]},
         {"weight", layer.weights[(i % H * T + target.position) * T + source.position]}});
  }
  Json json = {{"schema", "clearhead.edge-carriers.1"},
               {"from", from},
               {"to", to},
               {"key", source.position},
               {"query", target.position},
               {"edge", split.edge},
               {"direct", split.direct},
               {"one_hop", split.one_hop_sum()},
               {"multi_hop", split.multi_hop},
               {"share", kCarrierShare},
               {"n80", CountForShare(split.one_hop, kCarrierShare)},
               {"of", split.one_hop.size()},
               {"heads", std::move(heads)}};
  RoundNumbers(&json);
  return json;
}

Json ReasonsAnswer(const ModelSet& set, std::size_t model, const TracedPrompt& traced, HeadId head,
                   std::int64_t query, std::int64_t key) {
  const ModelConfig& config = traced.run.config();
  const QueryKeyReasons reasons = ExplainScore(traced.run, head.layer, head.head, query, key);
  const auto all = static_cast<std::int64_t>(reasons.query_terms.size()) *
                   static_cast<std::int64_t>(reasons.key_terms.size());
  Json raise = Json::array(), lower = Json::array();
  double listed = 0.0;
  for (const TermPair& pair : StrongestPairs(reasons, all)) {
    Json& list = pair.value > 0.0 ? raise : lower;
    if (static_cast<std::int64_t>(list.size()) == kReasonPairs || pair.value == 0.0) continue;
    listed += pair.value;
    list.push_back({{"query", TermJson(set, model, reasons.query_terms[pair.query])},
                    {"key", TermJson(set, model, reasons.key_terms[pair.key])},
                    {"value", pair.value}});
  }
  const std::int64_t T = traced.run.length();
  Json json = {{"schema", "clearhead.head-reasons.1"},
               {"head", ToText(head)},
               {"query", query},
               {"key", key},
               {"score", reasons.score},
               {"weight", traced.run.layers[head.layer].weights[(head.head * T + query) * T + key]},
               {"raise", std::move(raise)},
               {"lower", std::move(lower)},
               {"rest", reasons.score - listed},
               {"pairs", all},
               {"query_terms", SumsJson(set, model, reasons.query_terms, reasons.QuerySums())},
               {"key_terms", SumsJson(set, model, reasons.key_terms, reasons.KeySums())},
               {"gate", nullptr}};
  if (config.attention == AttentionKind::kGated) {
    const GateMargin gate =
        MarginOfGate(reasons, GateBiasOf(*traced.run.model, head.layer).Of(head.head));
    json["gate"] = {{"margin", gate.margin}, {"turning", gate.turning.size()}};
  }
  RoundNumbers(&json);
  return json;
}

std::string AnswerTrace(TraceQuestionKind kind, const ModelSet& set, const TraceQuestion& q,
                        TraceMemory& memory, const CancelQuestion& cancelled) {
  const TracedPrompt& traced = memory.Of(set, q.model, q.prompt.ids, [&] {
    if (cancelled && cancelled()) throw Cancelled("the trace was cancelled");
  });
  switch (kind) {
    case TraceQuestionKind::kTrace:
      return TraceFrame(set, q.model, q.prompt.text, traced);
    case TraceQuestionKind::kCarriers:
      return MakeFrame(CarriersAnswer(traced, q.from, q.to), {});
    case TraceQuestionKind::kReasons:
      break;
  }
  return MakeFrame(ReasonsAnswer(set, q.model, traced, q.head, q.query, q.key), {});
}

std::vector<TraceEdge> StrongestEdges(const TracedPrompt& traced) {
  const GroupedGraph grouped = SumByGroups(traced.graph, traced.groups, traced.scores.influence);
  const std::int64_t T = grouped.length;
  const auto source = [&](std::int64_t node) -> std::pair<std::string, std::int64_t> {
    if (node < grouped.count())
      return {fmt::format("group {}", node), grouped.groups[node].position};
    const std::int64_t kind = (node - grouped.count()) / T, at = (node - grouped.count()) % T;
    constexpr std::array<std::string_view, 4> kNames = {"others", "errors", "token", "position"};
    return {fmt::format("{}@{}", kNames[kind], at), at};
  };
  std::vector<TraceEdge> edges;
  for (std::int64_t row = 0; row < grouped.rows(); ++row) {
    const std::int64_t logit = row - grouped.count();
    const float* values = grouped.Row(row);
    double sum = 0.0;
    for (std::int64_t j = 0; j < grouped.sources(); ++j) sum += std::abs(values[j]);
    const double weight = logit < 0 ? grouped.influence[row] : grouped.logits[logit].probability;
    for (std::int64_t j = 0; j < grouped.Bias() && sum > 0.0; ++j) {
      if (j == row || values[j] == 0.0f) continue;
      const auto [name, at] = source(j);
      edges.push_back(
          {.from = name,
           .to = fmt::format("{} {}", logit < 0 ? "group" : "logit", logit < 0 ? row : logit),
           .key = at,
           .query = logit < 0 ? grouped.groups[row].position : grouped.logits[logit].position,
           .strength = weight * std::abs(values[j]) / sum});
    }
  }
  std::stable_sort(edges.begin(), edges.end(),
                   [](const TraceEdge& a, const TraceEdge& b) { return a.strength > b.strength; });
  return edges;
}

}  // namespace clearhead
