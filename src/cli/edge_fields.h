// SPDX-License-Identifier: MIT
// What commands print about the edges of a gated model.
#pragma once

#include "core/json.h"
#include "use/evaluate.h"

namespace clearhead::cli {

inline void AddEdgeFields(const EdgeTotals& edges, Json* json) {
  (*json)["open_edges"] = edges.open;
  (*json)["causal_edges"] = edges.causal;
  (*json)["edge_fraction"] = edges.fraction;
  (*json)["edges_per_query"] = edges.per_query;
}

}  // namespace clearhead::cli
