// SPDX-License-Identifier: MIT
#include "features/influence.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace clearhead {
namespace {

double SumOfMagnitudes(std::int64_t count, const float* edges) {
  double sum = 0.0;
  for (std::int64_t j = 0; j < count; ++j) sum += std::abs(edges[j]);
  return sum;
}

std::vector<TracedRow> RowsOfGraph(const AttributionGraph& graph) {
  std::vector<TracedRow> rows;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    rows.push_back({graph.NodeOfRow(r), graph.Row(r)});
  }
  return rows;
}

// The value at which values sorted from the largest on reach a share of their sum.
template <typename T>
double CutAt(std::vector<T> values, double share) {
  std::sort(values.begin(), values.end(), std::greater<>());
  const double total = std::accumulate(values.begin(), values.end(), 0.0);
  double sum = 0.0;
  for (const T value : values) {
    sum += value;
    if (sum >= share * total) return value;
  }
  return values.empty() ? 0.0 : values.back();
}

// Whether pruning may take the node.
bool MayGo(NodeKind kind) { return kind == NodeKind::kFeature || kind == NodeKind::kError; }

}  // namespace

std::vector<double> LogitWeights(const AttributionGraph& graph) {
  std::vector<double> weights;
  for (const LogitTarget& logit : graph.logits) weights.push_back(logit.probability);
  return weights;
}

std::vector<double> Influence(const GraphNodes& nodes, std::span<const TracedRow> rows,
                              std::span<const double> weights) {
  std::vector<double> influence(static_cast<std::size_t>(nodes.count()), 0.0);
  // From the logits down: when a row's turn comes, all that it influences has been added up.
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    double reaches = influence[row->node];
    if (row->node >= nodes.columns()) reaches += weights[row->node - nodes.columns()];
    const double sum = SumOfMagnitudes(nodes.columns(), row->edges);
    if (reaches == 0.0 || sum == 0.0) continue;
    const double share = reaches / sum;
    for (std::int64_t j = 0; j < nodes.columns(); ++j) {
      influence[j] += share * std::abs(row->edges[j]);
    }
  }
  return influence;
}

GraphScores ScoreGraph(const AttributionGraph& graph) {
  const GraphNodes& nodes = graph.nodes;
  GraphScores scores;
  const std::vector<double> weights = LogitWeights(graph);
  const std::vector<TracedRow> rows = RowsOfGraph(graph);
  scores.influence = Influence(nodes, rows, weights);
  const std::vector<double>& I = scores.influence;

  std::vector<std::int64_t> order(I.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return I[a] > I[b]; });
  const double total = std::accumulate(I.begin(), I.end(), 0.0);
  scores.cumulative.assign(I.size(), 0.0);
  double sum = 0.0;
  for (const std::int64_t node : order) {
    sum += I[node];
    scores.cumulative[node] = total > 0.0 ? sum / total : 0.0;
  }

  const auto range = [&](std::int64_t first, std::int64_t last) {
    return std::accumulate(I.begin() + first, I.begin() + last, 0.0);
  };
  double untraced = range(0, nodes.features);
  for (const std::int64_t f : graph.traced) untraced -= I[f];
  untraced = graph.traced.size() == graph.features.size() ? 0.0 : std::max(untraced, 0.0);
  const double tokens = range(nodes.Token(0), nodes.Token(nodes.length));
  const double given = range(nodes.Token(0), nodes.columns());
  const double errors = range(nodes.Error(0, 0), nodes.Token(0)) + untraced;
  const auto ratio = [](double a, double b) { return a + b > 0.0 ? a / (a + b) : 0.0; };
  scores.replacement = ratio(given, errors);
  scores.replacement_tokens_only = ratio(tokens, errors);
  scores.untraced = total > 0.0 ? untraced / total : 0.0;

  double complete = 0.0, all = 0.0;
  for (const TracedRow& row : rows) {
    double reaches = I[row.node];
    if (row.node >= nodes.columns()) reaches += weights[row.node - nodes.columns()];
    const double magnitude = SumOfMagnitudes(nodes.columns(), row.edges);
    const double error =
        SumOfMagnitudes(nodes.Token(0) - nodes.Error(0, 0), row.edges + nodes.Error(0, 0));
    complete += reaches * (magnitude > 0.0 ? 1.0 - error / magnitude : 1.0);
    all += reaches;
  }
  // Nodes without a row take nothing from errors.
  const double leaves = total + std::accumulate(weights.begin(), weights.end(), 0.0) - all;
  scores.completeness = all + leaves > 0.0 ? (complete + leaves) / (all + leaves) : 0.0;
  return scores;
}

std::vector<float> OriginsOf(const AttributionGraph& graph) {
  const GraphNodes& nodes = graph.nodes;
  const std::int64_t T = nodes.length;
  std::vector<float> origins(static_cast<std::size_t>(nodes.features * T), 0.0f);
  for (std::int64_t f = 0; f < nodes.features; ++f) {
    origins[f * T + graph.features[f].position] = 1.0f;
  }
  std::vector<double> sums(static_cast<std::size_t>(T));
  // Ascending rows: when a feature's turn comes, those that it reads have had theirs.
  for (std::size_t r = 0; r < graph.traced.size(); ++r) {
    const float* row = graph.Row(static_cast<std::int64_t>(r));
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t j = 0; j < nodes.features; ++j) {
      const double weight = std::abs(row[j]);
      if (weight == 0.0) continue;
      for (std::int64_t p = 0; p < T; ++p) sums[p] += weight * origins[j * T + p];
    }
    for (std::int64_t j = nodes.features; j < nodes.Bias(); ++j) {
      sums[nodes.PositionOf(j)] += std::abs(row[j]);
    }
    const double total = std::accumulate(sums.begin(), sums.end(), 0.0);
    if (total == 0.0) continue;
    float* own = origins.data() + graph.traced[r] * T;
    for (std::int64_t p = 0; p < T; ++p) own[p] = static_cast<float>(sums[p] / total);
  }
  return origins;
}

PrunedGraph PruneGraph(const AttributionGraph& graph, const GraphScores& scores,
                       const PruneOptions& options) {
  const GraphNodes& nodes = graph.nodes;
  const std::int64_t columns = nodes.columns();
  PrunedGraph pruned;
  pruned.node_cut = CutAt(scores.influence, options.nodes);
  pruned.nodes.resize(static_cast<std::size_t>(nodes.count()));
  for (std::int64_t n = 0; n < nodes.count(); ++n) {
    pruned.nodes[n] = !MayGo(nodes.KindOf(n)) || scores.influence[n] >= pruned.node_cut;
  }

  // What is left, and its influences.
  pruned.edge_scores = Buffer<float>(graph.edges.size());
  std::vector<TracedRow> rows;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    const std::int64_t node = graph.NodeOfRow(r);
    float* to = pruned.edge_scores.data() + r * columns;
    for (std::int64_t j = 0; j < columns; ++j) {
      to[j] = pruned.nodes[node] && pruned.nodes[j] ? graph.Row(r)[j] : 0.0f;
    }
    rows.push_back({node, to});
  }
  const std::vector<double> weights = LogitWeights(graph);
  const std::vector<double> influence = Influence(nodes, rows, weights);
  std::vector<float> positive;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    float* edges = pruned.edge_scores.data() + r * columns;
    double reaches = influence[rows[r].node];
    if (rows[r].node >= columns) reaches += weights[rows[r].node - columns];
    const double sum = SumOfMagnitudes(columns, edges);
    for (std::int64_t j = 0; j < columns; ++j) {
      edges[j] = sum > 0.0 ? static_cast<float>(std::abs(edges[j]) / sum * reaches) : 0.0f;
      if (edges[j] > 0.0f) positive.push_back(edges[j]);
    }
  }
  pruned.edge_cut = CutAt(std::move(positive), options.edges);
  pruned.edges.resize(static_cast<std::size_t>(graph.edges.size()));
  for (std::int64_t e = 0; e < graph.edges.size(); ++e) {
    pruned.edges[e] = pruned.edge_scores[e] > 0.0f && pruned.edge_scores[e] >= pruned.edge_cut;
  }

  // Nodes that lead nowhere or come from nowhere go, and with them their edges.
  std::vector<std::int64_t> row_of(static_cast<std::size_t>(nodes.count()), -1);
  for (std::int64_t r = 0; r < graph.rows(); ++r) row_of[rows[r].node] = r;
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<std::int64_t> out(static_cast<std::size_t>(columns), 0), in(rows.size(), 0);
    for (std::int64_t r = 0; r < graph.rows(); ++r) {
      if (!pruned.nodes[rows[r].node]) continue;
      for (std::int64_t j = 0; j < columns; ++j) {
        if (!pruned.nodes[j]) pruned.edges[r * columns + j] = 0;
        out[j] += pruned.edges[r * columns + j];
        in[r] += pruned.edges[r * columns + j];
      }
    }
    for (std::int64_t n = 0; n < columns; ++n) {
      if (!pruned.nodes[n] || !MayGo(nodes.KindOf(n))) continue;
      const bool starved = row_of[n] >= 0 && in[row_of[n]] == 0;
      if (out[n] > 0 && !starved) continue;
      pruned.nodes[n] = 0;
      if (row_of[n] >= 0) std::fill_n(pruned.edges.begin() + row_of[n] * columns, columns, 0);
      changed = true;
    }
  }
  pruned.nodes_kept = std::count(pruned.nodes.begin(), pruned.nodes.end(), 1);
  pruned.edges_kept = std::count(pruned.edges.begin(), pruned.edges.end(), 1);
  return pruned;
}

}  // namespace clearhead
