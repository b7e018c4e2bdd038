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
#include <string_view>
#include <vector>

#include "analysis/kept_run.h"
#include "analysis/replace_outputs.h"
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
  std::int64_t batch_rows = kTaskBatchRows;
  OnProgress on_progress = {};
};

// Runs over one batch that differ from a kept one in the outputs of some nodes.
//
// Only what a replacement can change is computed: from the first layer with a replaced node on (its
// attention is known), positions from the first on at which the two runs differ (the keys and
// values before it are cached), and in the last layer only the last position.
class PatchedRuns {
 public:
  // Both stay the caller's. `base.cache` is overwritten from position `first` on, which is
  // batch.shared for replacements from the twins' run and 0 otherwise.
  PatchedRuns(const Gpt2& model, const TaskSet& set, const TaskBatch& batch, KeptRun& base,
              const Replacement& replacement);

  // The metric of every item [B].
  std::vector<double> Run(const NodeSet& replaced);

 private:
  struct Stream {  // positions first .. first + length - 1 of every sequence
    std::int64_t first, length;
    Activations activations;
  };
  Pass PassOver(const Stream& stream, Hooks* hooks);
  void StartInLayer(std::int64_t layer, ReplaceOutputs& hooks, Stream& stream);

  const Gpt2& model_;
  const TaskSet& set_;
  const TaskBatch& batch_;
  KeptRun& base_;
  const Replacement& replacement_;
  ResidualGraph graph_;
  Stream wide_, last_;  // everything that can change; the last position alone
};

// Mean outputs of heads and MLPs over all positions of all corrupted prompts: one row per layer.
struct MeanOutputs {
  std::vector<Buffer<float>> z, mlp_out;
};
MeanOutputs MeanOfCorrupted(const Gpt2& model, const TaskSet& set,
                            const std::vector<TaskBatch>& batches);

// For every set of replaced nodes, the mean metric of the task over all items.
std::vector<double> MetricsWithReplaced(const Gpt2& model, const TaskSet& set,
                                        const std::vector<NodeSet>& replaced,
                                        const PatchOptions& options);

struct NodeEffects {
  double clean = 0.0, corrupted = 0.0;  // mean metrics of the plain runs
  std::vector<double> effect;           // by node; 0 for input and logits
};

// One node at a time.
NodeEffects PatchNodes(const Gpt2& model, const TaskSet& set,
                       const std::vector<std::int64_t>& nodes, const PatchOptions& options);

// The same, running the whole model for every patch: the specification, slow.
NodeEffects PatchNodesByRerunning(const Gpt2& model, const TaskSet& set,
                                  const std::vector<std::int64_t>& nodes,
                                  const PatchOptions& options);

}  // namespace clearhead
