// SPDX-License-Identifier: MIT
// The whole search for one model and one task: importance, curves, circuits of heads and of edges.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "circuits/attention_edges.h"
#include "circuits/attribution.h"
#include "circuits/edge_circuit.h"
#include "circuits/task_score.h"
#include "core/communicator.h"

namespace clearhead {

// What heads are ranked by. kBoth: the mean of the effects of noise and denoise, so that neither
// parts that stand in for each other (noise misses them) nor parts that need each other (denoise
// misses them) are lost.
enum class HeadImportance { kBoth, kNoise, kDenoise, kAttribution };
std::string_view ToText(HeadImportance importance);

struct FindOptions {
  bool heads = true, edges = false;
  Ablation ablation = Ablation::kResample;  // of heads outside the circuit; kBoth needs kResample
  HeadImportance importance = HeadImportance::kBoth;
  std::int64_t steps = 5;  // of EAP-IG; 0: EAP
  CurveOptions curve = {};
  std::int64_t batch_rows = kTaskBatchRows;
  Communicator* ranks = nullptr;  // prompts are shared out among them; null: one alone
  // `what` is running, `done` of `total` (0: unknown).
  std::function<void(std::string_view what, std::int64_t done, std::int64_t total)> on_progress =
      {};
};

struct HeadCircuit {
  std::vector<std::int64_t> heads;            // all of them, most important first
  std::vector<double> importance;             // by node
  std::optional<NodeEffects> noise, denoise;  // heads and MLPs; those that were measured
  CircuitCurve curve;
  AttentionEdges attention;  // of the circuit at 90 %
};

struct CircuitReport {
  std::string model;  // what to call it
  ModelConfig config;
  std::string task;
  std::string example;  // the first clean prompt
  TaskMetric metric = TaskMetric::kLogitDifference;
  std::int64_t items = 0, skipped = 0;
  FindOptions options;
  TaskScore score;
  Attribution attribution;                    // nodes and edges
  std::optional<DirectContributions> direct;  // of logit differences
  std::optional<HeadCircuit> heads;
  std::optional<EdgeCircuit> edges;
  std::vector<std::string> roles;  // by node, what heads do on the clean prompts (head_names.h)

  // Heads of the circuit that reaches 90 %, most important first: of the circuit of heads, or else
  // those in the circuit of edges.
  std::vector<std::int64_t> HeadsAt90() const;
};

// Throws Error if the model cannot do the task.
CircuitReport FindCircuit(const Model& model, const TaskSet& set, const FindOptions& options);

}  // namespace clearhead
