// SPDX-License-Identifier: MIT
#include "figures/circuit_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "circuits/circuit_json.h"

namespace clearhead {
namespace {

constexpr std::size_t kMostEdges = 120;  // more cannot be told apart
constexpr double kFaintestEdge = 0.03;   // of the strongest, in circuits of heads

DiagramEdgeKind KindOf(const ResidualGraph& graph, std::int64_t edge) {
  const std::string name = graph.EdgeName(edge);
  if (name.ends_with("<q>")) return DiagramEdgeKind::kQuery;
  if (name.ends_with("<k>")) return DiagramEdgeKind::kKey;
  if (name.ends_with("<v>")) return DiagramEdgeKind::kValue;
  return DiagramEdgeKind::kOther;
}

int RowOf(const ResidualGraph& graph, std::int64_t node) {
  if (node == graph.input()) return 0;
  if (node == graph.logits()) return static_cast<int>(2 * graph.layers() + 1);
  return static_cast<int>(2 * graph.LayerOf(node)) + (graph.IsMlp(node) ? 2 : 1);
}

// Nodes, and the strongest of `edges` (falling |score|) between them.
CircuitDiagram Diagram(const CircuitReport& report, const NodeSet& nodes,
                       const std::vector<std::int64_t>& edges, double faintest) {
  const ResidualGraph graph(report.config);
  CircuitDiagram diagram;
  diagram.rows = {""};
  for (std::int64_t layer = 0; layer < graph.layers(); ++layer) {
    diagram.rows.push_back(fmt::format("layer {}", layer));
    diagram.rows.push_back(fmt::format("MLP {}", layer));
  }
  diagram.rows.push_back("");
  const std::vector<double>& importance =
      report.heads ? report.heads->importance : report.attribution.nodes;
  const double total = report.score.clean_metric - report.score.corrupted_metric;
  std::vector<std::size_t> place(nodes.size(), 0);
  for (std::int64_t node = 0; node < graph.node_count(); ++node) {
    const auto at = static_cast<std::size_t>(node);
    if (!nodes[at]) continue;
    place[at] = diagram.nodes.size();
    DiagramNode box{
        .row = RowOf(graph, node), .label = graph.NodeLabel(node), .aside = graph.IsMlp(node)};
    if (graph.IsHead(node) || graph.IsMlp(node)) {
      const double share = importance[at] / total;
      box.label += fmt::format("  {:.0f} %", 100.0 * share);
      box.note = report.roles[at];
      box.strength = std::min(std::abs(share), 1.0);
      box.negative = share < 0.0;
    }
    diagram.nodes.push_back(box);
  }
  double strongest = 0.0;
  for (const std::int64_t edge : edges) {
    const double score = report.attribution.edges[static_cast<std::size_t>(edge)];
    strongest = std::max(strongest, std::abs(score));
    if (std::abs(score) < faintest * strongest || diagram.edges.size() == kMostEdges) break;
    diagram.edges.push_back(
        {.from = place[static_cast<std::size_t>(graph.SourceOfEdge(edge))],
         .to = place[static_cast<std::size_t>(graph.NodeOfReader(graph.ReaderOfEdge(edge)))],
         .strength = strongest > 0.0 ? std::abs(score) / strongest : 0.0,
         .kind = KindOf(graph, edge),
         .negative = score < 0.0});
  }
  return diagram;
}

// Edges of the set by falling |score|.
std::vector<std::int64_t> Ranked(const CircuitReport& report, const EdgeSet& set) {
  std::vector<std::int64_t> edges;
  for (const std::int64_t edge : RankByImportance(report.attribution.edges)) {
    if (set[static_cast<std::size_t>(edge)]) edges.push_back(edge);
  }
  return edges;
}

}  // namespace

CircuitCurveFigure CurveFigure(std::span<const CircuitReport> reports, bool edges) {
  CircuitCurveFigure figure{.element = edges ? "edges" : "heads", .log_sizes = edges};
  figure.title = fmt::format("{}: faithfulness of circuits (pale: random {})", reports[0].task,
                             figure.element);
  for (const CircuitReport& report : reports) {
    const CircuitCurve& curve = edges ? report.edges->curve : report.heads->curve;
    CircuitCurveSeries series{.name = fmt::format("{}: {} of {} {} at 90 %", report.model,
                                                  curve.At(0.9).size, curve.total, figure.element)};
    for (const CurvePoint& point : curve.points) {
      series.sizes.push_back(static_cast<double>(point.size));
      series.faithfulness.push_back(point.faithfulness);
    }
    series.random_sizes = {0.0};  // no set and the full one are the same for every order
    series.random_faithfulness = {0.0};
    for (const RandomPoint& point : curve.random) {
      series.random_sizes.push_back(static_cast<double>(point.size));
      series.random_faithfulness.push_back(point.faithfulness);
    }
    series.random_sizes.push_back(static_cast<double>(curve.total));
    series.random_faithfulness.push_back(1.0);
    figure.series.push_back(std::move(series));
  }
  return figure;
}

CircuitDiagram HeadDiagram(const CircuitReport& report) {
  const ResidualGraph graph(report.config);
  const std::vector<std::int64_t> heads = report.HeadsAt90();
  NodeSet nodes(static_cast<std::size_t>(graph.node_count()), false);
  for (const std::int64_t node : heads) nodes[static_cast<std::size_t>(node)] = true;
  nodes[static_cast<std::size_t>(graph.input())] = true;
  nodes[static_cast<std::size_t>(graph.logits())] = true;
  EdgeSet between(static_cast<std::size_t>(graph.edge_count()), false);
  for (std::int64_t edge = 0; edge < graph.edge_count(); ++edge) {
    between[static_cast<std::size_t>(edge)] =
        nodes[static_cast<std::size_t>(graph.SourceOfEdge(edge))] &&
        nodes[static_cast<std::size_t>(graph.NodeOfReader(graph.ReaderOfEdge(edge)))];
  }
  CircuitDiagram diagram = Diagram(report, nodes, Ranked(report, between), kFaintestEdge);
  diagram.title =
      fmt::format("{}: {} on {}", report.model,
                  report.heads->curve.At(0.9).size == 1 ? std::string("1 head")
                                                        : fmt::format("{} heads", heads.size()),
                  report.task);
  diagram.subtitle = fmt::format(
      "faithfulness {:.2f}; boxes: share of the effect; lines: strongest direct edges ({})",
      report.heads->curve.At(0.9).faithfulness, report.options.steps == 0 ? "EAP" : "EAP-IG");
  return diagram;
}

CircuitDiagram EdgeDiagram(const CircuitReport& report) {
  const ResidualGraph graph(report.config);
  const std::vector<std::int64_t> edges = Ranked(report, report.edges->at[1]);
  CircuitDiagram diagram = Diagram(report, NodesOf(graph, report.edges->at[1]), edges, 0.0);
  diagram.title = fmt::format("{}: {} edges on {}", report.model, edges.size(), report.task);
  diagram.subtitle = fmt::format(
      "faithfulness {:.2f}; boxes: share of the effect{}", report.edges->curve.At(0.9).faithfulness,
      edges.size() > diagram.edges.size() ? fmt::format("; the {} strongest are drawn", kMostEdges)
                                          : std::string());
  return diagram;
}

}  // namespace clearhead
