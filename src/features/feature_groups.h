// SPDX-License-Identifier: MIT
// Features at one position that mean the same, as one node: a group. What a feature means here is
//
//   its position's token   if its label says so (a pattern of it ends there), or if most of what
//                          makes it comes from its own position
//   "say X"                else, if it clearly promotes X, and X is a traced logit or another
//                          feature of the position promotes it too
//   "from X"               else, X being the token of the position that most of it comes from
//
// Features that mean the same and are in one layer or in adjacent ones go together. A group has the
// name of what it means and a span of layers, as in "large", layers 0-3.
//
// The graph of groups is exact again: its edges are sums of edges, its rows add up to the sums of
// their members' pre-activations. What is in no group is one node for each position.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "features/attribution_graph.h"
#include "features/feature_meanings.h"
#include "text/tokenizer.h"

namespace clearhead {

struct FeatureGroup {
  std::string name;
  std::int64_t position = 0, first_layer = 0, last_layer = 0;
  std::vector<std::int64_t> features;  // numbers of the graph's features, ascending
};

struct GroupOptions {
  // Promotion counts if the token stands out by this many deviations.
  float clear_promotion = 6.0f;
};

// Groups of the features with `kept`, each in one. `meanings` are of the kept features in their
// order, `origins` of all (influence.h). Sorted by position, first layer, name.
std::vector<FeatureGroup> GroupFeatures(const AttributionGraph& graph,
                                        std::span<const std::int32_t> ids,
                                        std::span<const std::uint8_t> kept,
                                        std::span<const FeatureMeaning> meanings,
                                        std::span<const float> origins, const Tokenizer* tokenizer,
                                        const GroupOptions& options = {});

// {"groups": [{"name": "large", "position": 5, "features": ["L0F12", ...]}, ...]}: to be edited and
// given again. Reading refuses features that are not active there and features in two groups.
Json ToJson(const AttributionGraph& graph, std::span<const FeatureGroup> groups);
std::vector<FeatureGroup> ReadGroups(const Json& json, std::string_view source,
                                     const AttributionGraph& graph);

// Its nodes: groups, then for each position the features in no group, the errors, the token, the
// position embedding (where there is one), then the bias, then the logits.
struct GroupedGraph {
  std::vector<FeatureGroup> groups;
  std::int64_t length = 0;
  bool positions = true;
  std::vector<LogitTarget> logits;
  Buffer<float> edges;            // [groups, then logits; sources]
  std::vector<double> targets;    // of the rows: sums of pre-activations, logits
  std::vector<double> influence;  // of every source: sum of its members'

  std::int64_t count() const { return static_cast<std::int64_t>(groups.size()); }
  std::int64_t Others(std::int64_t position) const { return count() + position; }
  std::int64_t Errors(std::int64_t position) const { return Others(length) + position; }
  std::int64_t Token(std::int64_t position) const { return Errors(length) + position; }
  std::int64_t Position(std::int64_t position) const { return Token(length) + position; }
  std::int64_t Bias() const { return Token(length) + (positions ? length : 0); }
  std::int64_t sources() const { return Bias() + 1; }
  std::int64_t rows() const { return static_cast<std::int64_t>(targets.size()); }
  const float* Row(std::int64_t row) const { return edges.data() + row * sources(); }
};

// Members of groups must have rows in the graph.
GroupedGraph SumByGroups(const AttributionGraph& graph, std::vector<FeatureGroup> groups,
                         std::span<const double> influence);

std::string NodeName(const GroupedGraph& graph, const Tokenizer* tokenizer, std::int64_t node);
std::string LayerSpan(const FeatureGroup& group);  // "layer 2", "layers 0-3"

}  // namespace clearhead
