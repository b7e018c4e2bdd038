// SPDX-License-Identifier: MIT
// Which heads carry one part of a graph to another, from a key's position to a query's: counted in
// several ways side by side, ranked for the edge that was asked for, each with its reasons, and
// checked by closing exactly these heads' cells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "features/attribution_graph.h"
#include "features/head_split.h"
#include "features/influence.h"
#include "features/knock_out.h"
#include "features/query_key_reasons.h"

namespace clearhead {

// The edge that is asked for.
struct CarrierEdge {
  std::int64_t query = 0, key = 0;
  std::string from, to;               // words for people
  std::vector<std::int64_t> sources;  // nodes
  std::vector<std::int64_t> targets;  // features (their pre-activations add up), or none:
  std::optional<LogitTarget> logit;   // then this
};

struct CarrierOptions {
  double share = 0.8;
  std::int64_t random_sets = 20;  // of the knock-out; 0: no knock-out
  std::uint64_t seed = 0;
  std::int64_t pairs = 5;  // reasons of each head
};

// One way to count: a number for every head, and how many of them make the share.
struct CarrierCount {
  std::string name;               // "position to logit"
  std::string from, to;           // what exactly, where it is one edge
  std::vector<double> values;     // [L,H] one-hop values, or sums of their magnitudes
  double heads = 0.0;             // for the share; a median may be a half
  std::int64_t contributing = 0;  // heads with a value that is not 0
  // Of single edges.
  std::optional<double> edge = {}, one_hop = {}, direct = {}, multi_hop = {};
};

struct CarrierHead {
  std::int64_t layer = 0, head = 0;
  double value = 0.0;    // one hop
  double share = 0.0;    // of the sum of all magnitudes
  double weight = 0.0;   // attention at (query, key), times its gate
  double through = 0.0;  // all that passes through the cell to the target, whatever its source
  QueryKeyReasons reasons;
  std::optional<GateMargin> gate;  // of gated models
};

struct Carriers {
  CarrierEdge edge;
  HeadSplit split;
  std::vector<CarrierHead> heads;               // those that make the share, strongest first
  std::int64_t n80_one_hop = 0, n80_heads = 0;  // for the share that was asked for
  std::int64_t contributing = 0;
  std::vector<CarrierCount> counts;
  struct Check {
    KnockOutMode mode;
    KnockOutShare share;
  };
  double stated_share = 0.0;  // what these heads have of the one-hop sum, with signs
  std::vector<Check> checks;
};

// Everything that is written at a position: features, errors, token, position embedding.
std::vector<std::int64_t> SourcesAt(const AttributionGraph& graph, std::int64_t position);

// Counts that need features are left out where there are none. `logit` says of which logit.
std::vector<CarrierCount> CountCarriers(const FrozenPrompt& prompt, const AttributionGraph& graph,
                                        const GraphScores& scores, std::int64_t logit,
                                        std::int64_t query, std::int64_t key, double share);

Carriers FindCarriers(const FrozenPrompt& prompt, const AttributionGraph& graph,
                      const GraphScores& scores, const CarrierEdge& edge,
                      const CarrierOptions& options);

std::string_view NameOf(KnockOutMode mode);  // "frozen", "attention frozen", "free"

}  // namespace clearhead
