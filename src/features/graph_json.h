// SPDX-License-Identifier: MIT
// Attribution graphs in files: graph.json as circuit-tracer writes it and Neuronpedia reads it, and
// the whole matrix as safetensors with a JSON of names beside it (docs/formats.md).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "features/attribution_graph.h"
#include "features/feature_groups.h"
#include "features/feature_meanings.h"
#include "features/influence.h"
#include "text/tokenizer.h"

namespace clearhead {

// What a graph is of, in words.
struct GraphCaption {
  std::string slug = "graph";
  std::string model, features;  // names
  std::string prompt;
  std::string version;  // of the program
};

// A pruned graph. `meanings` are of the features that are kept, in their order (or empty); groups
// of more than one feature become supernodes. Position embeddings and biases, which circuit-tracer
// has no nodes for, are embeddings of their own. Error nodes are <layer>_-1_<position>, as in its
// newer versions: the older 0_<layer>_<position> may also be a feature of layer 0.
Json GraphJson(const AttributionGraph& graph, const GraphScores& scores, const PrunedGraph& pruned,
               const PruneOptions& options, const GraphCaption& caption,
               std::span<const std::int32_t> ids, const Tokenizer* tokenizer,
               std::span<const FeatureMeaning> meanings, std::span<const FeatureGroup> groups);

// Adds the graph to the list of a folder, graph-metadata.json, or replaces the one of that slug.
void AddGraphMetadata(const std::filesystem::path& folder, const Json& graph);

// edges [rows, columns], edge_scores, edge_mask; features [n,3], activations [n]; targets [rows]
// (sums of the rows), measured [rows] (what the run had); influence, cumulative, node_mask [nodes];
// rows [rows], the node of each. Names and scores go to the same path with .json.
void WriteGraphMatrix(const std::filesystem::path& path, const AttributionGraph& graph,
                      const GraphScores& scores, const PrunedGraph& pruned,
                      std::span<const std::int32_t> ids, const Tokenizer* tokenizer);

// The edges that are kept, as lists: source, target [edges] (numbers of nodes), weight; features,
// activations, influence, cumulative, node_mask.
void WriteSparseGraph(const std::filesystem::path& path, const AttributionGraph& graph,
                      const GraphScores& scores, const PrunedGraph& pruned);

Json ScoresJson(const GraphScores& scores);
// The largest |sum of a row - what the run had|, and the largest of what the run had.
struct SumCheck {
  double largest_difference = 0.0, largest_target = 0.0;
};
SumCheck CheckSums(const AttributionGraph& graph);

}  // namespace clearhead
