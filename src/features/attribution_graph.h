// SPDX-License-Identifier: MIT
// The attribution graph of a prompt: which features, errors, embeddings and biases make every
// feature's pre-activation and every logit, with attention weights, norms' divisors and activations
// frozen. An edge is the change of the target that the source makes alone; because the frozen model
// is linear, the edges of a row add up to the target.
//
// Targets of one layer go backward through the frozen model together, and at every MLP output one
// product with the rows that sources write there gives their edges: nothing is done by pairs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "features/graph_nodes.h"
#include "features/written_rows.h"

namespace clearhead {

// A logit as a target: logit(token) - mean logit, or logit(token) - logit(against).
struct LogitTarget {
  std::int32_t token = 0;
  std::optional<std::int32_t> against = {};
  std::int64_t position = 0;
  double probability = 0.0;  // its weight in influence; 1 for a contrast
  double value = 0.0;        // in the run
};

struct LogitOptions {
  std::vector<std::int32_t> tokens = {};  // these; otherwise the likeliest ones:
  double mass = 0.95;                     // the fewest that have this much probability
  std::int64_t most = 10;                 // but no more than these
  std::optional<std::pair<std::int32_t, std::int32_t>> contrast = {};
  std::optional<std::int64_t> position = {};  // the last one
};
std::vector<LogitTarget> ChooseLogits(const FrozenPrompt& run, const LogitOptions& options);

// The direction [C] in which the target reads the final norm's output.
std::vector<float> DirectionOf(const FrozenPrompt& run, const LogitTarget& target);

struct GraphOptions {
  LogitOptions logits = {};
  // Features beyond these have no row: those with the largest influence on the logits have one,
  // which is found anew with every few rows that are added. 0: all have.
  std::int64_t max_features = 0;
  // Targets that go together, and rows of gradients (targets times positions).
  std::int64_t batch_targets = 512, batch_rows = 1 << 14;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
};

struct AttributionGraph {
  GraphNodes nodes;
  std::vector<ActiveFeature> features;  // [nodes.features]
  std::vector<LogitTarget> logits;
  std::vector<std::int64_t> traced;  // the features that have a row, ascending
  Buffer<float> edges;               // [traced, then logits; columns]
  std::vector<double> targets;       // pre-activations and logits as they were in the run

  std::int64_t rows() const { return static_cast<std::int64_t>(targets.size()); }
  const float* Row(std::int64_t row) const { return edges.data() + row * nodes.columns(); }
  std::int64_t NodeOfRow(std::int64_t row) const {
    const auto n = static_cast<std::int64_t>(traced.size());
    return row < n ? traced[static_cast<std::size_t>(row)] : nodes.Logit(row - n);
  }
};

AttributionGraph Trace(const FrozenPrompt& run, const GraphOptions& options);

// circuit-tracer's node set: no positions, no bias, no features at position 0, and the errors there
// without edges. Other edges keep their numbers; rows no longer add up.
AttributionGraph CompatibleGraph(const AttributionGraph& graph);

}  // namespace clearhead
