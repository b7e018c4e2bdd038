// SPDX-License-Identifier: MIT
#include "circuits/circuit_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace clearhead {
namespace {

constexpr std::string_view kSchema = "clearhead.circuit/1";

std::string Percent(double target) { return fmt::format("{:.0f}", 100.0 * target); }

Json RandomJson(const RandomPoint& random) {
  return {{"size", random.size},
          {"sets", random.sets},
          {"faithfulness", random.faithfulness},
          {"deviation", random.deviation}};
}

// total, at_80 .. at_99, full, empty, marks, curve, random, area.
void AddCurve(const CircuitCurve& curve, Json* json) {
  (*json)["total"] = curve.total;
  for (const CircuitMark& mark : curve.marks) (*json)["at_" + Percent(mark.target)] = mark.size;
  (*json)["full"] = curve.full;
  (*json)["empty"] = curve.empty;
  (*json)["area"] = curve.area;
  Json marks = Json::array(), points = Json::array(), random = Json::array();
  for (const CircuitMark& mark : curve.marks) {
    marks.push_back({{"target", mark.target},
                     {"size", mark.size},
                     {"faithfulness", mark.faithfulness},
                     {"random", RandomJson(mark.random)}});
  }
  for (const CurvePoint& point : curve.points) {
    points.push_back(
        {{"size", point.size}, {"metric", point.metric}, {"faithfulness", point.faithfulness}});
  }
  for (const RandomPoint& point : curve.random) random.push_back(RandomJson(point));
  (*json)["marks"] = marks;
  (*json)["curve"] = points;
  (*json)["random"] = random;
}

Json NodeJson(const CircuitReport& report, const ResidualGraph& graph, std::int64_t node) {
  const auto at = static_cast<std::size_t>(node);
  Json json = {{graph.IsHead(node) ? "head" : "mlp", graph.NodeLabel(node)},
               {"layer", graph.LayerOf(node)}};
  if (graph.IsHead(node)) json["index"] = graph.HeadOf(node);
  const double total = report.score.clean_metric - report.score.corrupted_metric;
  if (report.heads) {
    json["importance"] = report.heads->importance[at];
    json["share"] = report.heads->importance[at] / total;
    if (report.heads->noise) json["noise"] = report.heads->noise->effect[at];
    if (report.heads->denoise) json["denoise"] = report.heads->denoise->effect[at];
  } else {
    json["importance"] = report.attribution.nodes[at];
    json["share"] = report.attribution.nodes[at] / total;
  }
  json["attribution"] = report.attribution.nodes[at];
  if (report.direct) json["direct"] = report.direct->nodes[at];
  if (!report.roles[at].empty()) json["role"] = report.roles[at];
  return json;
}

Json EdgesJson(const CircuitReport& report, const ResidualGraph& graph) {
  const EdgeCircuit& edges = *report.edges;
  Json json = Json::object();
  AddCurve(edges.curve, &json);
  Json kept = Json::array();
  for (const EdgeSet& at : edges.at) kept.push_back(std::count(at.begin(), at.end(), true));
  for (std::size_t i = 0; i < edges.at.size(); ++i) {
    const NodeSet nodes = NodesOf(graph, edges.at[i]);
    std::int64_t heads = 0, mlps = 0;
    for (std::int64_t node = 0; node < graph.node_count(); ++node) {
      if (!nodes[static_cast<std::size_t>(node)]) continue;
      if (graph.IsHead(node)) ++heads;
      if (graph.IsMlp(node)) ++mlps;
    }
    json["marks"][i]["pruned_size"] = kept[i];
    json["marks"][i]["heads"] = heads;
    json["marks"][i]["mlps"] = mlps;
  }
  Json list = Json::array();
  for (const std::int64_t edge : edges.order) {
    if (!edges.at[1][static_cast<std::size_t>(edge)]) continue;
    list.push_back({{"edge", graph.EdgeName(edge)},
                    {"score", report.attribution.edges[static_cast<std::size_t>(edge)]}});
  }
  json["edges_at_90"] = list;
  return json;
}

}  // namespace

CircuitSettings SettingsOf(const CircuitReport& report) {
  const FindOptions& o = report.options;
  CircuitSettings settings;
  settings.metric = ToText(report.metric);
  settings.ablation = o.ablation == Ablation::kResample ? "resample (outputs on the corrupted twin)"
                      : o.ablation == Ablation::kMean
                          ? "mean (over all positions of all corrupted prompts)"
                          : "zero";
  switch (o.importance) {
    case HeadImportance::kBoth:
      settings.importance = "exact patching, mean of noise and denoise effects";
      break;
    case HeadImportance::kNoise:
      settings.importance = "exact patching, noise (into the clean run)";
      break;
    case HeadImportance::kDenoise:
      settings.importance = "exact patching, denoise (clean into the corrupted run)";
      break;
    case HeadImportance::kAttribution:
      settings.importance = "attribution patching, " + AttributionName({.steps = o.steps});
      break;
  }
  settings.granularity =
      "heads at all positions; clean prompts run, heads outside the circuit ablated, MLPs left to "
      "run";
  settings.edges = AttributionName({.steps = o.steps}) +
                   "; (corrupted - clean) . d(-metric)/d input, positive: corrupting the edge "
                   "hurts; edges outside the circuit carry corrupted values, at all positions";
  settings.faithfulness = "(m(C) - m(empty)) / (m(full) - m(empty)), of means over items";
  settings.random = fmt::format("mean of {} random sets of equal size", o.curve.random_sets);
  return settings;
}

EdgeSet EdgesAt90(const CircuitReport& report) {
  if (report.edges) return report.edges->at[1];
  const ResidualGraph graph(report.config);
  NodeSet nodes = OtherHeads(graph, report.HeadsAt90());
  nodes.flip();
  EdgeSet edges(static_cast<std::size_t>(graph.edge_count()), false);
  for (std::int64_t reader = 0; reader < graph.reader_count(); ++reader) {
    if (!nodes[static_cast<std::size_t>(graph.NodeOfReader(reader))]) continue;
    for (std::int64_t source = 0; source < graph.SourcesOf(reader); ++source) {
      edges[static_cast<std::size_t>(graph.Edge(source, reader))] =
          nodes[static_cast<std::size_t>(source)];
    }
  }
  return edges;
}

Json CircuitJson(const CircuitReport& report) {
  const ResidualGraph graph(report.config);
  const CircuitSettings settings = SettingsOf(report);
  Json json = {{"schema", kSchema},
               {"model", report.model},
               {"layers", report.config.layers},
               {"heads_per_layer", report.config.heads},
               {"gated", report.config.attention == AttentionKind::kGated},
               {"task", report.task},
               {"metric", settings.metric},
               {"items", report.items},
               {"skipped", report.skipped},
               {"clean_metric", report.score.clean_metric},
               {"corrupted_metric", report.score.corrupted_metric},
               {"accuracy", report.score.accuracy},
               {"ablation", settings.ablation},
               {"importance", settings.importance},
               {"granularity", settings.granularity},
               {"faithfulness", settings.faithfulness},
               {"random_baseline", settings.random},
               {"edge_scores", settings.edges}};
  if (report.heads) {
    AddCurve(report.heads->curve, &json);
    const AttentionEdges& attention = report.heads->attention;
    json["attention_edges"] = {{"per", "prompt, in the heads that reach 90 %"},
                               {"all", attention.all},
                               {"open", attention.open},
                               {"kept", attention.kept},
                               {"kept_faithfulness", attention.kept_faithfulness},
                               {"smallest_weight_kept", attention.threshold}};
  } else {
    json["at_90"] = report.HeadsAt90().size();
  }
  std::vector<std::int64_t> heads = report.HeadsAt90();
  if (report.heads) heads = report.heads->heads;
  for (const std::int64_t node : RankByImportance(report.attribution.nodes)) {
    const bool listed = std::find(heads.begin(), heads.end(), node) != heads.end();
    if (graph.IsHead(node) && !listed) heads.push_back(node);
  }
  json["heads"] = Json::array();
  for (const std::int64_t head : heads) json["heads"].push_back(NodeJson(report, graph, head));
  json["mlps"] = Json::array();
  for (const std::int64_t mlp : graph.AllMlps()) {
    json["mlps"].push_back(NodeJson(report, graph, mlp));
  }
  if (report.direct) {
    json["direct_input"] = report.direct->nodes[0];
    json["direct_bias"] = report.direct->bias;
  }
  if (report.edges) json["edges"] = EdgesJson(report, graph);
  return json;
}

Json GraphJson(const CircuitReport& report) {
  const ResidualGraph graph(report.config);
  const EdgeSet in_graph = EdgesAt90(report);
  const NodeSet nodes = NodesOf(graph, in_graph);
  Json json = {{"cfg",
                {{"n_layers", report.config.layers},
                 {"n_heads", report.config.heads},
                 {"parallel_attn_mlp", false},
                 {"d_model", report.config.width}}},
               {"nodes", Json::object()},
               {"edges", Json::object()}};
  for (std::int64_t node = 0; node < graph.node_count(); ++node) {
    json["nodes"][graph.NodeName(node)] = {
        {"in_graph", static_cast<bool>(nodes[static_cast<std::size_t>(node)])}};
  }
  // Strings straight into the object's vector: looking each key up would be quadratic.
  auto& edges = json["edges"].get_ref<Json::object_t&>();
  for (std::int64_t edge = 0; edge < graph.edge_count(); ++edge) {
    const auto at = static_cast<std::size_t>(edge);
    edges.push_back({graph.EdgeName(edge), Json{{"score", report.attribution.edges[at]},
                                                {"in_graph", static_cast<bool>(in_graph[at])}}});
  }
  return json;
}

}  // namespace clearhead
