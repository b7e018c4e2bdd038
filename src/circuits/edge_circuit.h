// SPDX-License-Identifier: MIT
// Circuits of edges: every reader gets the sum of what its sources wrote, where sources on edges
// outside the circuit count with what they wrote on the corrupted prompt:
//
//   input of v = stream of the corrupted run at v + sum over edges u -> v of the circuit of
//                (z_u now - z_u corrupted)
//
// Without edges that is the corrupted run, with all of them the clean one. Positions and items are
// not told apart: an edge is in the circuit for all of them.
#pragma once

#include "circuits/circuit.h"

namespace clearhead {

using EdgeSet = std::vector<bool>;  // by edge of the residual graph

// The edges that lie on a path from the input to the logits inside the set.
EdgeSet PruneEdges(const ResidualGraph& graph, const EdgeSet& edges);

// The nodes these edges touch.
NodeSet NodesOf(const ResidualGraph& graph, const EdgeSet& edges);

// For every set of edges, the mean metric of the task, run as above. (Not pruned here: edges on no
// path change nothing but time.)
// The model is one in which every head has its own keys and values (model/ungroup.h).
std::vector<double> MetricsOfEdgeSets(const TaskRuns& runs, const std::vector<EdgeSet>& sets);

struct EdgeCircuit {
  CircuitCurve curve;               // sizes are numbers of edges before pruning
  std::vector<std::int64_t> order;  // edges by falling |score|
  std::vector<EdgeSet> at;          // pruned, one for each mark of the curve
};

// Edges by |score|, added in that order, pruned and run.
EdgeCircuit TraceEdges(const TaskRuns& runs, const std::vector<double>& scores, double full,
                       const CurveOptions& options, const OnProgress& on_progress = {});

}  // namespace clearhead
