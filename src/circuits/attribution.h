// SPDX-License-Identifier: MIT
// Attribution: first-order estimates of what patching would do, for all nodes and edges at once
// from gradients.
//
//   score(u -> v) = mean over items of  sum over positions of
//                       (z_u(corrupted) - z_u(clean)) . dL/d(input of v),     L = -metric
//
// Positive: corrupting the edge lowers the metric. The gradient is taken
//   EAP              on the clean run (attribution patching, one backward);
//   EAP-IG (inputs)  as the mean over runs from the embeddings corrupted + (k/m)(clean -
//   corrupted),
//                    k = 0 .. m-1, as EAP-IG's code has it.
// The score of a node is the same with the gradient of its output: all its edges together.
// Through closed and open gates the gradient is the straight-through one (gated_attention.h).
#pragma once

#include <string>
#include <vector>

#include "circuits/patching.h"

namespace clearhead {

struct AttributionOptions {
  std::int64_t steps = 0;  // m of EAP-IG; 0: EAP
  bool edges = true;       // else nodes only, which is cheaper
  OnProgress on_progress = {};
};

struct Attribution {
  std::vector<double> nodes;  // by node; 0 for logits
  std::vector<double> edges;  // by edge of the residual graph; empty if not asked for
};

// Edges are asked of a model in which every head has its own keys and values (model/ungroup.h).
Attribution Attribute(const TaskRuns& runs, const AttributionOptions& options);

std::string AttributionName(const AttributionOptions& options);  // "EAP-IG (inputs), 5 steps"

// The clean runs' mean logit difference, split into what every source adds directly to the logits
// at the last position with the final norm's scale as it was:
//   sum of nodes + bias = metric.
struct DirectContributions {
  std::vector<double> nodes;  // by node; 0 for logits
  double bias = 0.0;          // of the attention outputs and of the final norm
};

// Of logit differences only: a probability has no such sum.
DirectContributions DirectLogitContributions(const TaskRuns& runs);

}  // namespace clearhead
