// SPDX-License-Identifier: MIT
// Exact activation patching: what a task's metric becomes when the outputs of chosen heads and MLPs
// are replaced and everything after them runs anew.
//
//   noise     clean prompts run, outputs of the corrupted twins go in;  effect = m(clean) - m
//   denoise   corrupted prompts run, outputs of the clean ones go in;   effect = m - m(corrupted)
//
// Either way a positive effect says that the node carries the behaviour. The metric is always that
// of the clean prompt's answers. Means over items are means of metrics (ratios are ratios of
// means).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "circuits/replace_outputs.h"
#include "circuits/task_runs.h"
#include "model/activations.h"

namespace clearhead {

enum class Direction { kNoise, kDenoise };

// What ablated outputs become. kMean: one vector per head and MLP, the mean over all positions of
// all corrupted prompts of the task.
enum class Ablation { kResample, kMean, kZero };

std::string_view ToText(Direction direction);
std::string_view ToText(Ablation ablation);

using OnProgress = std::function<void(std::int64_t done, std::int64_t total)>;

struct PatchOptions {
  Direction direction = Direction::kNoise;
  Ablation ablation = Ablation::kResample;  // the others only with kNoise
  OnProgress on_progress = {};
};

// Rows of the stream that patched runs hold at a time: as many sets of nodes run side by side as
// fit, because products with few rows spend their time on packing the weights.
inline constexpr std::int64_t kPatchedRows = 1024;

// Runs over one batch that differ from a kept one in the outputs of some nodes.
//
// Only what a replacement can change is computed: from the first layer with a replaced node on (its
// attention is known, and of its output the difference that the replaced heads make), positions
// from the first on at which the two runs differ (the keys and values before it are cached), and in
// the last layer only the last position.
class PatchedRuns {
 public:
  // All stay the caller's. `most_sets`: how many sets the caller will run.
  PatchedRuns(const Model& model, const TaskSet& set, const TaskBatch& batch, const KeptRun& base,
              const Replacement& replacement, std::size_t most_sets);

  // For every set of replaced nodes the metric of every item, [sets][B].
  std::vector<std::vector<double>> Run(const std::vector<NodeSet>& replaced);

 private:
  struct Stream {  // positions first .. first + length - 1 of every sequence, for every set
    std::int64_t first, length;
    Activations activations;
  };
  struct Start {  // the first replaced node: a head of this layer, or its MLP
    std::int64_t layer;
    bool heads;
    bool operator==(const Start&) const = default;
  };
  using Sets = std::span<const NodeSet>;

  std::optional<Start> StartOf(const NodeSet& replaced) const;
  std::vector<double> RunTogether(const Start& start, Sets sets);  // [sets * B]
  void StartInLayer(const Start& start, Sets sets, ReplaceOutputs& hooks, Stream& stream);
  void AddHeadDifferences(std::int64_t layer, const NodeSet& replaced, const Stream& stream,
                          float* resid_mid);
  void StartBehindNorm(const Pass& pass, std::int64_t layer, ReplaceOutputs& hooks, Stream& stream);
  Pass PassOver(const Stream& stream, Sets sets, Hooks* hooks);

  const Model& model_;
  const TaskSet& set_;
  const TaskBatch& batch_;
  const KeptRun& base_;
  const Replacement& replacement_;
  ResidualGraph graph_;
  std::int64_t first_;    // position that may differ
  std::int64_t at_once_;  // sets side by side
  Stream wide_, last_;    // everything that can change; the last position alone
  KeyValueCache cache_;   // of all sets' sequences; the base's up to first_
};

// Mean outputs of heads and MLPs over all positions of all corrupted prompts: one row per layer.
struct MeanOutputs {
  std::vector<Buffer<float>> z, mlp_out;
};
MeanOutputs MeanOfCorrupted(const TaskRuns& runs);

// For every set of replaced nodes, the mean metric of the task over all items.
std::vector<double> MetricsWithReplaced(const TaskRuns& runs, const std::vector<NodeSet>& replaced,
                                        const PatchOptions& options);

struct NodeEffects {
  double clean = 0.0, corrupted = 0.0;  // mean metrics of the plain runs
  std::vector<double> effect;           // by node; 0 for input and logits
};

// One node at a time.
NodeEffects PatchNodes(const TaskRuns& runs, const std::vector<std::int64_t>& nodes,
                       const PatchOptions& options);

// The same, running the whole model for every patch: the specification, slow.
NodeEffects PatchNodesByRerunning(const TaskRuns& runs, const std::vector<std::int64_t>& nodes,
                                  const PatchOptions& options);

}  // namespace clearhead
