// SPDX-License-Identifier: MIT
// Tasks of random tokens for models of any weights.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "circuits/residual_graph.h"
#include "core/random.h"
#include "model/model_testing.h"
#include "tasks/task_items.h"

namespace clearhead {

// Twins of several lengths that agree up to a random position and at the last one.
inline TaskSet RandomTask(const ModelConfig& config, std::int64_t count, std::uint64_t seed,
                          TaskMetric metric = TaskMetric::kLogitDifference) {
  RandomStream random(seed);
  const auto token = [&] {
    return static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(config.vocabulary)));
  };
  TaskSet set{.name = "random", .metric = metric};
  for (std::int64_t n = 0; n < count; ++n) {
    const std::size_t length = std::vector<std::size_t>{5, 7, 11, 2}[random.Below(4)];
    TaskItem item;
    for (std::size_t t = 0; t < length; ++t) item.clean.push_back(token());
    item.corrupted = item.clean;
    for (std::size_t t = random.Below(length - 1); t + 1 < length; ++t) item.corrupted[t] = token();
    item.answers = {token(), token()};
    item.wrongs = {token()};
    set.items.push_back(item);
  }
  return set;
}

inline std::vector<std::int64_t> HeadsAndMlps(const ResidualGraph& graph) {
  std::vector<std::int64_t> nodes = graph.AllHeads();
  const std::vector<std::int64_t> mlps = graph.AllMlps();
  nodes.insert(nodes.end(), mlps.begin(), mlps.end());
  return nodes;
}

inline ModelConfig DeepConfig(AttentionKind attention) {
  ModelConfig config = OddConfig();
  config.layers = 3;
  config.attention = attention;
  config.gate_bias = 0.25f;
  return config;
}

// Deep models of every form.
inline std::vector<ModelConfig> DeepConfigs() {
  std::vector<ModelConfig> configs = TestConfigs();
  for (ModelConfig& config : configs) config.layers = 3;
  return configs;
}

}  // namespace clearhead
