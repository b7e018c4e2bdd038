// SPDX-License-Identifier: MIT
// Circuits as files: circuit.json (docs/circuits.md has the schema) and graph.json in EAP-IG's
// form.
#pragma once

#include "circuits/find_circuit.h"
#include "core/json.h"

namespace clearhead {

// The words that go with every number.
struct CircuitSettings {
  std::string metric, ablation, importance, granularity, edges, faithfulness, random;
};
CircuitSettings SettingsOf(const CircuitReport& report);

Json CircuitJson(const CircuitReport& report);

// Scores of all edges; in_graph: the edges of the circuit of edges that reaches 90 %, or else all
// edges among the circuit's heads, MLPs, input and logits.
Json GraphJson(const CircuitReport& report);

// The edges that GraphJson marks.
EdgeSet EdgesAt90(const CircuitReport& report);

}  // namespace clearhead
