// SPDX-License-Identifier: MIT
// What of an attribution graph matters for the logits, after circuit-tracer:
//
//   A = |edges|, every row divided by its sum;  w = the logits' probabilities
//   influence   I = w A + w A^2 + ...          (finite: sources are in front of targets)
//   nodes kept  I >= the value at which the sorted influences reach a share of their sum; tokens,
//               positions, bias and logits always
//   edges kept  A'_ij (I'_i + w_i), of what is left, likewise; then, again and again, features and
//               errors without an outgoing and features without an incoming edge go
//   replacement    I(tokens, positions, bias) / (the same + I(errors) + I(features without a row))
//   completeness   sum (I_i + w_i) (1 - sum over errors of A_ij) / sum (I_i + w_i)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/attribution_graph.h"

namespace clearhead {

// A row of edges [columns] and the node it belongs to. Rows are sorted by node.
struct TracedRow {
  std::int64_t node;
  const float* edges;
};

std::vector<double> LogitWeights(const AttributionGraph& graph);

// Of every node. `weights`: of the logits.
std::vector<double> Influence(const GraphNodes& nodes, std::span<const TracedRow> rows,
                              std::span<const double> weights);

struct GraphScores {
  std::vector<double> influence;   // of every node
  std::vector<double> cumulative;  // share of all influence that it and those above it have
  double replacement = 0.0, replacement_tokens_only = 0.0, completeness = 0.0;
  double untraced = 0.0;  // share of influence that ends in features without a row
};
GraphScores ScoreGraph(const AttributionGraph& graph);

// How much of what makes each feature comes from each position: [features, T]. Rows of |edges| as
// shares, followed down to tokens, position embeddings and errors; what comes from biases is left
// out. A feature without a row counts for its own position.
std::vector<float> OriginsOf(const AttributionGraph& graph);

struct PruneOptions {
  double nodes = 0.8, edges = 0.98;
};

struct PrunedGraph {
  std::vector<std::uint8_t> nodes;  // 1: kept
  Buffer<float> edge_scores;        // as the graph's edges
  std::vector<std::uint8_t> edges;  // 1: kept
  double node_cut = 0.0, edge_cut = 0.0;
  std::int64_t nodes_kept = 0, edges_kept = 0;
};
PrunedGraph PruneGraph(const AttributionGraph& graph, const GraphScores& scores,
                       const PruneOptions& options = {});

}  // namespace clearhead
