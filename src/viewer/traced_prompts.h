// SPDX-License-Identifier: MIT
// Attribution graphs for the page: a prompt traced once for each model, and kept until another one
// is asked for, so that questions about its edges and heads need no new graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "features/attribution_graph.h"
#include "features/feature_groups.h"
#include "features/feature_meanings.h"
#include "features/influence.h"
#include "viewer/model_set.h"

namespace clearhead {

// What bounds time and memory of a graph whatever the model.
inline constexpr std::int64_t kMaxTraceTokens = 64;
inline constexpr std::int64_t kMaxTracedFeatures = 2000;   // with a row
inline constexpr std::int64_t kMaxShownFeatures = 500;     // with a place on the page
inline constexpr std::int64_t kMaxTraceFloats = 32 << 20;  // of the matrix of edges: 128 MB

struct TracedPrompt {
  FrozenPrompt run;
  AttributionGraph graph;
  GraphScores scores;
  // Features that are kept by pruning and have a row, ascending; the most influential ones where
  // they would be too many. What is not here is one node of its position, "others".
  std::vector<std::int64_t> shown;
  std::vector<FeatureMeaning> meanings;  // of `shown`
  std::vector<FeatureGroup> groups;      // of `shown`, each in one
  GroupedGraph singles;                  // each of `shown` a group of its own: sums of it are exact
};

// The model must have features. `between` is called now and then and may throw, to stop.
TracedPrompt TracePromptOf(const ModelSet& set, std::size_t model,
                           std::span<const std::int32_t> ids, const std::function<void()>& between);

// The last prompt of each model, without the matrix of its graph. For one thread at a time: the
// work queue's.
class TraceMemory {
 public:
  const TracedPrompt& Of(const ModelSet& set, std::size_t model, std::span<const std::int32_t> ids,
                         const std::function<void()>& between);

 private:
  std::vector<std::unique_ptr<TracedPrompt>> last_;
};

// An end of an edge as the page names it: "group 3", "L2F31@5", "errors@5", "others@5" (features
// that are not shown), "token@5", "position@5"; targets are groups, features and "logit 0".
struct TraceNode {
  std::int64_t position = 0;
  std::vector<std::int64_t> nodes;   // of the graph; of a logit none
  std::optional<LogitTarget> logit;  // of targets
};

// Throw Error for other words, and for what is not there.
TraceNode FindSource(const TracedPrompt& traced, std::string_view name);
TraceNode FindTarget(const TracedPrompt& traced, std::string_view name);

}  // namespace clearhead
