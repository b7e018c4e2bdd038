// SPDX-License-Identifier: MIT
// How many token-level attention edges (query, key, head) a circuit of heads uses.
//
//   all    causal pairs of its heads: what there could be
//   open   pairs with an open gate (gated models; equal to `all` in others)
//   kept   the fewest largest weights that carry the circuit: the others are set to 0 (not
//          renormalised), and the metric falls by at most 1 % of m(full) - m(empty)
//
// Means per prompt, on clean prompts, with the heads outside the circuit ablated by resampling and
// the pairs chosen by the weights they have then.
#pragma once

#include "circuits/circuit.h"

namespace clearhead {

inline constexpr double kAttentionEdgeTolerance = 0.01;

struct AttentionEdges {
  double all = 0.0, open = 0.0, kept = 0.0;
  double kept_faithfulness = 0.0;  // of the circuit with only these edges
  double threshold = 0.0;          // the smallest weight kept
};

AttentionEdges CountAttentionEdges(const TaskRuns& runs, std::span<const std::int64_t> heads,
                                   const CircuitCurve& curve);

}  // namespace clearhead
