// SPDX-License-Identifier: MIT
#include "heads/results_json.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace clearhead {
namespace {

Json Optional(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

// The numbers of a head under their names: one list for JSON and CSV.
std::vector<std::pair<std::string, double>> Numbers(const HeadStatistics& s) {
  return {{"mass", s.mass},
          {"self", s.self},
          {"previous", s.previous},
          {"first", s.first},
          {"best_offset", static_cast<double>(s.best_offset)},
          {"best_offset_mass", s.best_offset_mass},
          {"diagonal_dominance", s.diagonal_dominance},
          {"peak", s.peak},
          {"mean_peak", s.mean_peak},
          {"importance", s.importance},
          {"entropy", s.entropy},
          {"effective_keys", s.effective_keys},
          {"uniformity", s.uniformity},
          {"empty_rows", s.empty_rows},
          {"banding", s.banding},
          {"bands", s.bands},
          {"horizontal_lines", s.horizontal_lines},
          {"open_edges_per_query", s.open_edges_per_query},
          {"edge_fraction", s.edge_fraction},
          {"strong_off_diagonal", s.strong_off_diagonal}};
}

Json ToJson(const TargetScore& score) {
  return {{"queries", score.queries},
          {"mass", score.mass},
          {"share", score.share},
          {"closeness", score.closeness}};
}

Json ToJson(const ValueChange& change) {
  return {{"before", change.before}, {"after", change.after}, {"p", Optional(change.p)}};
}

Json ToJson(const std::vector<HeadPart>& parts) {
  Json json = Json::array();
  for (const HeadPart& part : parts) {
    json.push_back({{"kind", KindName(part.kind)}, {"score", part.score}});
  }
  return json;
}

Json Names(const std::vector<HeadId>& heads) {
  Json json = Json::array();
  for (const HeadId head : heads) json.push_back(ToText(head));
  return json;
}

Json ToJson(const ModelSummary& summary) {
  Json kinds = Json::object();
  for (int kind = 0; kind < kHeadKinds; ++kind) {
    kinds[std::string(KindName(static_cast<HeadKind>(kind)))] =
        summary.kinds[static_cast<std::size_t>(kind)];
  }
  return {{"diagonal_dominant", summary.diagonal_dominant},
          {"diagonal_intensity", summary.diagonal_intensity},
          {"peak_intensity", summary.peak_intensity},
          {"sink_mass", summary.sink_mass},
          {"sink_heads", summary.sink_heads},
          {"open_edges_per_query", summary.open_edges_per_query},
          {"edge_fraction", summary.edge_fraction},
          {"kinds", kinds}};
}

}  // namespace

Json ToJson(const HeadResult& head) {
  const HeadStatistics& s = head.statistics;
  Json json = {{"head", ToText(s.head)},           {"name", head.name.name},
               {"kind", KindName(head.name.kind)}, {"score", head.name.score},
               {"margin", head.name.margin},       {"sentence", head.name.sentence},
               {"parts", ToJson(head.name.parts)}, {"empty", s.empty}};
  for (const auto& [name, value] : Numbers(s)) json[name] = value;
  json["best_offset"] = s.best_offset;
  json["previous_token"] = ToJson(s.previous_token);
  json["duplicate_token"] = s.tokens_known ? ToJson(s.duplicate_token) : Json(nullptr);
  json["induction"] = s.tokens_known ? ToJson(s.induction) : Json(nullptr);
  json["evidence"] = ToJson(head.name.evidence);
  return json;
}

Json ToJson(const ModelReport& report, const std::vector<const HeadResult*>& shown) {
  Json heads = Json::array();
  for (const HeadResult* head : shown) heads.push_back(ToJson(*head));
  return {{"label", report.label},
          {"layers", report.layers},
          {"heads_per_layer", report.heads_per_layer},
          {"sequences", report.sequences},
          {"tokens", report.tokens},
          {"longest", report.longest},
          {"summary", ToJson(report.summary)},
          {"heads", heads}};
}

Json ToJson(const ModelComparison& c) {
  Json heads = Json::array();
  for (const HeadChange& head : c.heads) {
    heads.push_back({{"head", ToText(head.head)},
                     {"kind_before", KindName(head.before)},
                     {"kind_after", KindName(head.after)},
                     {"self", ToJson(head.self)},
                     {"first", ToJson(head.first)},
                     {"mean_peak", ToJson(head.mean_peak)},
                     {"open_edges_per_query", ToJson(head.open_edges_per_query)}});
  }
  return {{"before", c.before},
          {"after", c.after},
          {"paired", c.paired},
          {"connections_removed_percent", Optional(c.connections_removed)},
          {"diagonal_intensity_lost_percent", Optional(c.diagonal_intensity_lost)},
          {"sinks_before", c.sinks_before},
          {"sinks_after", c.sinks_after},
          {"sinks_eliminated", c.sinks_eliminated},
          {"diagonal_dominant", ToJson(c.diagonal_dominant)},
          {"diagonal_intensity", ToJson(c.diagonal_intensity)},
          {"peak_intensity", ToJson(c.peak_intensity)},
          {"sink_mass", ToJson(c.sink_mass)},
          {"open_edges_per_query", ToJson(c.open_edges_per_query)},
          {"heads", heads}};
}

Json ToJson(const Composition& c) {
  Json json = {{"baseline", c.baseline}, {"baseline_deviation", c.baseline_deviation}};
  for (int kind = 0; kind < kCompositionKinds; ++kind) {
    const CompositionCount& count = c.counts[static_cast<std::size_t>(kind)];
    json[std::string(CompositionName(static_cast<CompositionKind>(kind)))] = {
        {"pairs", count.pairs}, {"strong", count.strong}, {"mean_excess", count.mean_excess}};
  }
  Json strongest = Json::array();
  for (const CompositionPair& pair : c.strongest) {
    strongest.push_back({{"kind", CompositionName(pair.kind)},
                         {"from", ToText(pair.from)},
                         {"to", ToText(pair.to)},
                         {"score", pair.score},
                         {"excess", pair.score - c.baseline}});
  }
  json["strongest"] = strongest;
  return json;
}

Json CompositionChange(const Composition& before, const Composition& after) {
  Json json = Json::object();
  for (std::size_t kind = 0; kind < kCompositionKinds; ++kind) {
    const CompositionCount &b = before.counts[kind], &a = after.counts[kind];
    json[std::string(CompositionName(static_cast<CompositionKind>(kind)))] = {
        {"strong_before", b.strong},
        {"strong_after", a.strong},
        {"mean_excess_before", b.mean_excess},
        {"mean_excess_after", a.mean_excess}};
  }
  return json;
}

Json ToJson(const ScatterSection& section) {
  Json cells = Json::array();
  for (std::size_t y = 0; y < section.heads.size(); ++y) {
    for (std::size_t x = 0; x < y; ++x) {
      const ScatterCell& cell = section.Cell(y, x);
      cells.push_back({{"x", ToText(section.heads[x])},
                       {"y", ToText(section.heads[y])},
                       {"pearson", Optional(cell.pearson)},
                       {"spearman", Optional(cell.spearman)}});
      if (!cell.counts.empty()) cells.back()["counts"] = cell.counts;
    }
  }
  Json json = {{"label", section.label},
               {"length", section.length},
               {"pairs", section.pairs},
               {"heads", Names(section.heads)},
               {"largest", section.largest},
               {"histograms", section.histograms},
               {"cells", cells}};
  if (section.points.empty()) return json;
  // Six places: finer than a pixel, a third of the bytes.
  Json points = Json::array();
  for (const std::vector<float>& of_head : section.points) {
    Json rounded = Json::array();
    for (const float weight : of_head) rounded.push_back(std::round(1e6 * weight) / 1e6);
    points.push_back(std::move(rounded));
  }
  json["points"] = std::move(points);
  return json;
}

Json ToJson(const CorrelationMatrix& matrix) {
  const std::size_t n = matrix.heads.size();
  Json rows = Json::array();
  for (std::size_t i = 0; i < n; ++i) {
    Json row = Json::array();
    for (std::size_t j = 0; j < n; ++j) row.push_back(Optional(matrix.r[i * n + j]));
    rows.push_back(row);
  }
  Json strongest = Json::array();
  for (const CorrelatedPair& pair : matrix.strongest) {
    strongest.push_back({{"a", ToText(pair.a)}, {"b", ToText(pair.b)}, {"r", pair.r}});
  }
  return {{"label", matrix.label},
          {"length", matrix.length},
          {"pairs", matrix.pairs},
          {"heads", Names(matrix.heads)},
          {"defined_heads", matrix.defined_heads},
          {"median_magnitude", Optional(matrix.median_magnitude)},
          {"share_above_half", matrix.share_above_half},
          {"strongest", strongest},
          {"r", rows}};
}

std::string HeadCsvHeader() {
  std::string line = "model,head,name,kind,score,margin,empty";
  for (const auto& [name, value] : Numbers({})) line += "," + name;
  for (const char* target : {"previous_token", "duplicate_token", "induction"}) {
    line += fmt::format(",{0}_queries,{0}_mass,{0}_share,{0}_closeness", target);
  }
  return line + ",sentence\n";
}

std::string HeadCsvLine(const std::string& label, const HeadResult& head) {
  const auto quoted = [](const std::string& text) {
    std::string result = "\"";
    for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
    return result + "\"";
  };
  const HeadStatistics& s = head.statistics;
  std::string line =
      fmt::format("{},{},{},{},{},{},{}", quoted(label), ToText(s.head), quoted(head.name.name),
                  KindName(head.name.kind), head.name.score, head.name.margin, s.empty ? 1 : 0);
  for (const auto& [name, value] : Numbers(s)) line += fmt::format(",{}", value);
  for (const TargetScore* score : {&s.previous_token, &s.duplicate_token, &s.induction}) {
    const bool known = score == &s.previous_token || s.tokens_known;
    line += known ? fmt::format(",{},{},{},{}", score->queries, score->mass, score->share,
                                score->closeness)
                  : ",,,,";
  }
  return line + "," + quoted(head.name.sentence) + "\n";
}

}  // namespace clearhead
