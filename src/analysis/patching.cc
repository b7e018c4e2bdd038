#include "analysis/patching.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "model/block.h"
#include "model/head.h"
#include "model/run.h"

namespace clearhead {
namespace {

// to[b*n + t, :] = from[b*T + first + t, :].
void CopyRows(const TaskBatch& batch, std::int64_t first, std::int64_t n, std::int64_t width,
              const Buffer<float>& from, float* to) {
  for (std::int64_t b = 0; b < batch.size(); ++b) {
    const float* rows = from.data() + (b * batch.length + first) * width;
    std::copy(rows, rows + n * width, to + b * n * width);
  }
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

NodeSet Only(const ResidualGraph& graph, std::int64_t node) {
  NodeSet set(static_cast<std::size_t>(graph.node_count()), false);
  set[static_cast<std::size_t>(node)] = true;
  return set;
}

std::vector<NodeSet> OneByOne(const ResidualGraph& graph, const std::vector<std::int64_t>& nodes) {
  std::vector<NodeSet> sets;
  for (const std::int64_t node : nodes) sets.push_back(Only(graph, node));
  return sets;
}

// Runs `sets` over one batch of which the two plain runs are known; metrics[set][b].
using RunSets = std::function<std::vector<std::vector<double>>(
    const TaskBatch& batch, KeptRun& base, const Replacement& replacement)>;

// The mean metric of every set, and of the plain runs. Batches outermost: memory is that of one
// batch. Sums run over the items in the set's order, whatever the batches.
struct AllMetrics {
  double clean = 0.0, corrupted = 0.0;
  std::vector<double> sets;
};

AllMetrics OverBatches(const Gpt2& model, const TaskSet& set, std::size_t count,
                       const PatchOptions& options, const RunSets& run) {
  Check(options.ablation == Ablation::kResample || options.direction == Direction::kNoise,
        "means and zeros replace outputs of the clean run");
  const std::vector<TaskBatch> batches = MakeTaskBatches(set, model.config, options.batch_rows);
  MeanOutputs means;
  if (options.ablation == Ablation::kMean) means = MeanOfCorrupted(model, set, batches);
  std::vector<double> clean(set.items.size()), corrupted(set.items.size());
  std::vector<std::vector<double>> metrics(count, std::vector<double>(set.items.size()));
  std::int64_t done = 0;
  for (const TaskBatch& batch : batches) {
    KeptRun clean_run = RunAndKeep(model, set, batch, /*corrupted=*/false);
    KeptRun corrupted_run = RunAndKeep(model, set, batch, /*corrupted=*/true);
    const bool noise = options.direction == Direction::kNoise;
    KeptRun& base = noise ? clean_run : corrupted_run;
    const KeptRun& source = noise ? corrupted_run : clean_run;
    Replacement replacement;
    if (options.ablation == Ablation::kResample) {
      replacement = {.z = &source.z, .mlp_out = &source.mlp_out};
    } else if (options.ablation == Ablation::kMean) {
      replacement = {.z = &means.z, .mlp_out = &means.mlp_out, .per_row = false};
    }
    const std::vector<std::vector<double>> found = run(batch, base, replacement);
    for (std::size_t b = 0; b < batch.items.size(); ++b) {
      clean[batch.items[b]] = clean_run.metrics[b];
      corrupted[batch.items[b]] = corrupted_run.metrics[b];
      for (std::size_t s = 0; s < count; ++s) metrics[s][batch.items[b]] = found[s][b];
    }
    done += batch.size();
    if (options.on_progress) {
      options.on_progress(done, static_cast<std::int64_t>(set.items.size()));
    }
  }
  AllMetrics all{.clean = Mean(clean), .corrupted = Mean(corrupted)};
  for (const std::vector<double>& items : metrics) all.sets.push_back(Mean(items));
  return all;
}

RunSets Patched(const Gpt2& model, const TaskSet& set, const std::vector<NodeSet>& replaced) {
  return [&](const TaskBatch& batch, KeptRun& base, const Replacement& replacement) {
    PatchedRuns runs(model, set, batch, base, replacement);
    std::vector<std::vector<double>> metrics;
    for (const NodeSet& nodes : replaced) metrics.push_back(runs.Run(nodes));
    return metrics;
  };
}

NodeEffects Effects(const ResidualGraph& graph, const std::vector<std::int64_t>& nodes,
                    const AllMetrics& metrics, Direction direction) {
  NodeEffects effects{.clean = metrics.clean, .corrupted = metrics.corrupted};
  effects.effect.resize(static_cast<std::size_t>(graph.node_count()), 0.0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    effects.effect[static_cast<std::size_t>(nodes[i])] = direction == Direction::kNoise
                                                             ? metrics.clean - metrics.sets[i]
                                                             : metrics.sets[i] - metrics.corrupted;
  }
  return effects;
}

}  // namespace

std::string_view ToText(Direction direction) {
  return direction == Direction::kNoise ? "noise" : "denoise";
}

std::string_view ToText(Ablation ablation) {
  switch (ablation) {
    case Ablation::kResample:
      return "resample";
    case Ablation::kMean:
      return "mean";
    case Ablation::kZero:
      return "zero";
  }
  return "";
}

PatchedRuns::PatchedRuns(const Gpt2& model, const TaskSet& set, const TaskBatch& batch,
                         KeptRun& base, const Replacement& replacement)
    : model_(model),
      set_(set),
      batch_(batch),
      base_(base),
      replacement_(replacement),
      graph_(model.config),
      wide_([&] {
        const std::int64_t first =
            replacement.per_row && replacement.z != nullptr ? batch.shared : 0;
        const std::int64_t length = batch.length - first;
        return Stream{first, length,
                      Activations(model.config, batch.size(), length, Keep::kNothing, 0)};
      }()),
      last_{batch.length - 1, 1, Activations(model.config, batch.size(), 1, Keep::kNothing, 0)} {}

Pass PatchedRuns::PassOver(const Stream& stream, Hooks* hooks) {
  base_.cache.length = stream.first;
  return {.model = model_,
          .batch = batch_.size(),
          .length = stream.length,
          .hooks = hooks,
          .cache = &base_.cache};
}

// The layer with the first replaced node: its attention read nothing that changed.
void PatchedRuns::StartInLayer(std::int64_t layer, ReplaceOutputs& hooks, Stream& stream) {
  const std::int64_t C = model_.config.width, H = model_.config.heads, n = stream.length;
  const auto at = static_cast<std::size_t>(layer);
  const Pass pass = PassOver(stream, &hooks);
  const BlockActivations& a = stream.activations.blocks[at];
  const std::int64_t count = pass.rows() * C;
  float* branch = stream.activations.branch;
  const bool heads = hooks.ReplacesHeads(layer);
  if (heads) {
    CopyRows(batch_, stream.first, n, C, base_.z[at], a.z);
    hooks.Visit({Tap::kZ, layer}, {a.z, {batch_.size(), n, H, C / H}});
    LinearForward(LayersOf(pass, layer).attn_c_proj, pass.rows(), a.z, branch);
    CopyRows(batch_, stream.first, n, C, base_.resid_pre[at], a.resid_mid);
  } else {
    CopyRows(batch_, stream.first, n, C, base_.resid_mid[at], a.resid_mid);
    hooks.Visit({Tap::kMlpOut, layer}, pass.Rows(branch, C));
  }
  for (std::int64_t i = 0; i < count; ++i) a.resid_mid[i] += branch[i];
  if (heads) MlpHalfForward(pass, layer, stream.activations);
}

std::vector<double> PatchedRuns::Run(const NodeSet& replaced) {
  const std::int64_t C = model_.config.width, last = model_.config.layers - 1;
  ReplaceOutputs wide_hooks(graph_, replaced, replacement_, batch_.length, wide_.first);
  ReplaceOutputs last_hooks(graph_, replaced, replacement_, batch_.length, last_.first);
  const auto first = std::find(replaced.begin() + 1, replaced.begin() + graph_.logits(), true);
  if (first == replaced.begin() + graph_.logits()) return base_.metrics;
  const std::int64_t start = graph_.LayerOf(first - replaced.begin());

  if (start == last) {
    StartInLayer(last, last_hooks, last_);
  } else {
    StartInLayer(start, wide_hooks, wide_);
    Activations& wide = wide_.activations;
    const Pass pass = PassOver(wide_, &wide_hooks);
    for (std::int64_t layer = start + 1; layer < last; ++layer) BlockForward(pass, layer, wide);
    AppendKeysAndValues(pass, last, wide);
    const Buffer<float> rows = LastRows(batch_.size(), wide_.length, C, wide.resid_final);
    std::copy(rows.begin(), rows.end(), last_.activations.resid_final);
    BlockForward(PassOver(last_, &last_hooks), last, last_.activations);
  }
  const Pass pass = PassOver(last_, nullptr);
  FinalNormForward(pass, last_.activations);
  return LastMetrics(pass, set_, batch_, last_.activations.ln_f);
}

MeanOutputs MeanOfCorrupted(const Gpt2& model, const TaskSet& set,
                            const std::vector<TaskBatch>& batches) {
  const std::int64_t C = model.config.width;
  const auto layers = static_cast<std::size_t>(model.config.layers);
  std::vector<std::vector<double>> z(layers, std::vector<double>(static_cast<std::size_t>(C))),
      mlp_out = z;
  const auto add = [&](const Buffer<float>& rows, std::vector<double>& sums) {
    for (std::int64_t i = 0; i < rows.size(); ++i) sums[static_cast<std::size_t>(i % C)] += rows[i];
  };
  std::int64_t rows = 0;
  for (const TaskBatch& batch : batches) {
    const KeptRun run = RunAndKeep(model, set, batch, /*corrupted=*/true);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      add(run.z[layer], z[layer]);
      add(run.mlp_out[layer], mlp_out[layer]);
    }
    rows += batch.size() * batch.length;
  }
  MeanOutputs means;
  const auto mean = [&](const std::vector<double>& sums) {
    Buffer<float> row(C);
    for (std::int64_t i = 0; i < C; ++i) {
      row[i] = static_cast<float>(sums[static_cast<std::size_t>(i)] / static_cast<double>(rows));
    }
    return row;
  };
  for (std::size_t layer = 0; layer < layers; ++layer) {
    means.z.push_back(mean(z[layer]));
    means.mlp_out.push_back(mean(mlp_out[layer]));
  }
  return means;
}

std::vector<double> MetricsWithReplaced(const Gpt2& model, const TaskSet& set,
                                        const std::vector<NodeSet>& replaced,
                                        const PatchOptions& options) {
  return OverBatches(model, set, replaced.size(), options, Patched(model, set, replaced)).sets;
}

NodeEffects PatchNodes(const Gpt2& model, const TaskSet& set,
                       const std::vector<std::int64_t>& nodes, const PatchOptions& options) {
  const ResidualGraph graph(model.config);
  const std::vector<NodeSet> sets = OneByOne(graph, nodes);
  return Effects(graph, nodes,
                 OverBatches(model, set, sets.size(), options, Patched(model, set, sets)),
                 options.direction);
}

NodeEffects PatchNodesByRerunning(const Gpt2& model, const TaskSet& set,
                                  const std::vector<std::int64_t>& nodes,
                                  const PatchOptions& options) {
  const ResidualGraph graph(model.config);
  const bool corrupted = options.direction == Direction::kDenoise;
  const auto run = [&](const TaskBatch& batch, KeptRun&, const Replacement& replacement) {
    std::vector<std::vector<double>> metrics;
    Activations activations(model.config, batch.size(), batch.length, Keep::kNothing, 0);
    for (const std::int64_t node : nodes) {
      const NodeSet only = Only(graph, node);
      ReplaceOutputs hooks(graph, only, replacement, batch.length, 0);
      const Pass pass{
          .model = model, .batch = batch.size(), .length = batch.length, .hooks = &hooks};
      ForwardToFinalNorm(pass, batch.Prompts(corrupted).data(), activations);
      const Buffer<float> last =
          LastRows(batch.size(), batch.length, model.config.width, activations.ln_f);
      metrics.push_back(LastMetrics(pass, set, batch, last.data()));
    }
    return metrics;
  };
  return Effects(graph, nodes, OverBatches(model, set, nodes.size(), options, run),
                 options.direction);
}

}  // namespace clearhead
