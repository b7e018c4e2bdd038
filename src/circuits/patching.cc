// SPDX-License-Identifier: MIT
#include "circuits/patching.h"

#include <algorithm>

#include "core/error.h"
#include "model/block.h"
#include "model/head_weights.h"
#include "model/output.h"
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
    const TaskBatch& batch, const KeptRun& base, const Replacement& replacement)>;

// The mean metric of every set. Sums run over the items in the set's order, whatever the batches.
std::vector<double> OverBatches(const TaskRuns& runs, std::size_t count,
                                const PatchOptions& options, const RunSets& run) {
  Check(options.ablation == Ablation::kResample || options.direction == Direction::kNoise,
        "means and zeros replace outputs of the clean run");
  MeanOutputs means;
  if (options.ablation == Ablation::kMean) means = MeanOfCorrupted(runs);
  const std::size_t items = runs.set().items.size();
  std::vector<std::vector<double>> metrics(count, std::vector<double>(items));
  std::int64_t done = 0;
  for (std::size_t n = 0; n < runs.batches().size(); ++n) {
    const TaskBatch& batch = runs.batches()[n];
    done += batch.size();
    if (!runs.Owns(n)) continue;
    const bool noise = options.direction == Direction::kNoise;
    const auto base = noise ? runs.Clean(n) : runs.Corrupted(n);
    std::shared_ptr<const KeptRun> source;
    Replacement replacement;
    if (options.ablation == Ablation::kResample) {
      source = noise ? runs.Corrupted(n) : runs.Clean(n);
      replacement = {.z = &source->z, .mlp_out = &source->mlp_out};
    } else if (options.ablation == Ablation::kMean) {
      replacement = {.z = &means.z, .mlp_out = &means.mlp_out, .per_row = false};
    }
    const std::vector<std::vector<double>> found = run(batch, *base, replacement);
    for (std::size_t b = 0; b < batch.items.size(); ++b) {
      for (std::size_t s = 0; s < count; ++s) metrics[s][batch.items[b]] = found[s][b];
    }
    if (options.on_progress) options.on_progress(done, static_cast<std::int64_t>(items));
  }
  return runs.MeansOf(metrics);
}

RunSets Patched(const TaskRuns& runs, const std::vector<NodeSet>& replaced) {
  return [&](const TaskBatch& batch, const KeptRun& base, const Replacement& replacement) {
    return PatchedRuns(runs.model(), runs.set(), batch, base, replacement, replaced.size())
        .Run(replaced);
  };
}

NodeEffects Effects(const TaskRuns& runs, const std::vector<std::int64_t>& nodes,
                    const std::vector<double>& metrics, Direction direction) {
  NodeEffects effects{.clean = runs.clean_metric(), .corrupted = runs.corrupted_metric()};
  effects.effect.resize(static_cast<std::size_t>(ResidualGraph(runs.config()).node_count()), 0.0);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    effects.effect[static_cast<std::size_t>(nodes[i])] = direction == Direction::kNoise
                                                             ? effects.clean - metrics[i]
                                                             : metrics[i] - effects.corrupted;
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

PatchedRuns::PatchedRuns(const Model& model, const TaskSet& set, const TaskBatch& batch,
                         const KeptRun& base, const Replacement& replacement, std::size_t most_sets)
    : model_(model),
      set_(set),
      batch_(batch),
      base_(base),
      replacement_(replacement),
      graph_(model.config),
      first_(replacement.per_row && replacement.z != nullptr ? batch.shared : 0),
      at_once_(std::clamp(kPatchedRows / (batch.size() * (batch.length - first_)), std::int64_t{1},
                          std::max(static_cast<std::int64_t>(most_sets), std::int64_t{1}))),
      wide_{first_, batch.length - first_,
            Activations(model.config, at_once_ * batch.size(), batch.length - first_,
                        Keep::kNothing, 0)},
      last_{batch.length - 1, 1,
            Activations(model.config, at_once_ * batch.size(), 1, Keep::kNothing, 0)},
      cache_(model.config, at_once_ * batch.size(), batch.length) {
  const std::int64_t width = model.config.kv_width();
  const std::int64_t step = batch.length * width, known = first_ * width;
  const auto fill = [&](const Buffer<float>& from, Buffer<float>& to) {
    for (std::int64_t s = 0; s < at_once_ * batch.size(); ++s) {
      const float* rows = from.data() + s % batch.size() * step;
      std::copy(rows, rows + known, to.data() + s * step);
    }
  };
  for (std::size_t layer = 0; layer < cache_.keys.size(); ++layer) {
    fill(base.cache.keys[layer], cache_.keys[layer]);
    fill(base.cache.values[layer], cache_.values[layer]);
  }
}

Pass PatchedRuns::PassOver(const Stream& stream, Sets sets, Hooks* hooks) {
  cache_.length = stream.first;
  return {.model = model_,
          .batch = static_cast<std::int64_t>(sets.size()) * batch_.size(),
          .length = stream.length,
          .hooks = hooks,
          .cache = &cache_};
}

std::optional<PatchedRuns::Start> PatchedRuns::StartOf(const NodeSet& replaced) const {
  const auto end = replaced.begin() + graph_.logits();
  const auto first = std::find(replaced.begin() + 1, end, true);
  if (first == end) return std::nullopt;
  const std::int64_t node = first - replaced.begin();
  return Start{graph_.LayerOf(node), graph_.IsHead(node)};
}

// resid_mid += (z' - z) W_O, over the columns from the first to the last replaced head.
void PatchedRuns::AddHeadDifferences(std::int64_t layer, const NodeSet& replaced,
                                     const Stream& stream, float* resid_mid) {
  const std::int64_t C = model_.config.width, D = model_.config.head_size();
  const std::int64_t Z = model_.config.heads_width();
  std::vector<std::int64_t> heads;
  for (std::int64_t h = 0; h < graph_.heads(); ++h) {
    if (replaced[static_cast<std::size_t>(graph_.Head(layer, h))]) heads.push_back(h);
  }
  const std::int64_t begin = heads.front() * D, width = (heads.back() + 1) * D - begin;
  const std::int64_t rows = batch_.size() * stream.length;
  Buffer<float> difference(rows * width), change(rows * C);
  std::fill(difference.begin(), difference.end(), 0.0f);  // between the heads it stays so
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t row = r / stream.length * batch_.length + stream.first + r % stream.length;
    const float* to = replacement_.Z(layer, row, Z);
    const float* from = base_.z[static_cast<std::size_t>(layer)].data() + row * Z;
    for (const std::int64_t h : heads) {
      float* d = difference.data() + r * width + h * D - begin;
      for (std::int64_t i = 0; i < D; ++i) {
        d[i] = (to == nullptr ? 0.0f : to[h * D + i]) - from[h * D + i];
      }
    }
  }
  const Linear output = LayersOf(model_, layer).output.linear;
  LinearForward(InputsOf(output, begin, width), rows, difference.data(), change.data());
  for (std::int64_t i = 0; i < rows * C; ++i) resid_mid[i] += change[i];
}

// The layer with the first replaced node: its attention read nothing that changed.
void PatchedRuns::StartInLayer(const Start& start, Sets sets, ReplaceOutputs& hooks,
                               Stream& stream) {
  const std::int64_t C = model_.config.width;
  const auto at = static_cast<std::size_t>(start.layer);
  const Pass pass = PassOver(stream, sets, &hooks);
  if (start.heads && model_.config.norm_place == NormPlace::kAfter) {
    return StartBehindNorm(pass, start.layer, hooks, stream);
  }
  float* resid_mid = stream.activations.blocks[at].resid_mid;
  const std::int64_t count = batch_.size() * stream.length * C;  // of one set
  for (std::size_t s = 0; s < sets.size(); ++s) {
    float* rows = resid_mid + static_cast<std::int64_t>(s) * count;
    CopyRows(batch_, stream.first, stream.length, C, base_.resid_mid[at], rows);
    if (start.heads) AddHeadDifferences(start.layer, sets[s], stream, rows);
  }
  if (start.heads) return MlpHalfForward(pass, start.layer, stream.activations);
  float* branch = stream.activations.branch;
  hooks.Visit({Tap::kMlpOut, start.layer}, pass.Rows(branch, C));
  for (std::int64_t i = 0; i < pass.rows() * C; ++i) resid_mid[i] += branch[i];
}

// Where a norm stands behind attention, differences do not add up: all heads go through it again.
void PatchedRuns::StartBehindNorm(const Pass& pass, std::int64_t layer, ReplaceOutputs& hooks,
                                  Stream& stream) {
  const ModelConfig& config = model_.config;
  const auto at = static_cast<std::size_t>(layer);
  BlockActivations& a = stream.activations.blocks[at];
  const std::int64_t rows = batch_.size() * stream.length, Z = config.heads_width();
  for (std::int64_t s = 0; s < pass.batch / batch_.size(); ++s) {
    CopyRows(batch_, stream.first, stream.length, config.width, base_.resid_pre[at],
             a.resid_pre + s * rows * config.width);
    CopyRows(batch_, stream.first, stream.length, Z, base_.z[at], a.z + s * rows * Z);
  }
  hooks.Visit({Tap::kZ, layer}, {a.z, {pass.batch, pass.length, config.heads, config.head_size()}});
  HeadsToStream(pass, layer, stream.activations);
  MlpHalfForward(pass, layer, stream.activations);
}

std::vector<double> PatchedRuns::RunTogether(const Start& start, Sets sets) {
  const std::int64_t C = model_.config.width, last = model_.config.layers - 1;
  ReplaceOutputs wide_hooks(graph_, sets, replacement_, batch_.length, wide_.first);
  ReplaceOutputs last_hooks(graph_, sets, replacement_, batch_.length, last_.first);
  if (start.layer == last) {
    StartInLayer(start, sets, last_hooks, last_);
  } else {
    StartInLayer(start, sets, wide_hooks, wide_);
    Activations& wide = wide_.activations;
    const Pass pass = PassOver(wide_, sets, &wide_hooks);
    for (std::int64_t layer = start.layer + 1; layer < last; ++layer) {
      BlockForward(pass, layer, wide);
    }
    AppendKeysAndValues(pass, last, wide);
    const Buffer<float> rows = LastRows(pass.batch, wide_.length, C, wide.resid_final);
    std::copy(rows.begin(), rows.end(), last_.activations.resid_final);
    BlockForward(PassOver(last_, sets, &last_hooks), last, last_.activations);
  }
  const Pass pass = PassOver(last_, sets, nullptr);
  FinalNormForward(pass, last_.activations);
  return LastMetrics(pass, set_, batch_, last_.activations.ln_f);
}

std::vector<std::vector<double>> PatchedRuns::Run(const std::vector<NodeSet>& replaced) {
  std::vector<std::vector<double>> metrics;
  while (metrics.size() < replaced.size()) {
    const std::size_t begin = metrics.size();
    const std::optional<Start> start = StartOf(replaced[begin]);
    if (!start) {
      metrics.push_back(base_.metrics);
      continue;
    }
    std::size_t end = begin + 1;  // sets that start alike run side by side
    while (end < replaced.size() && end - begin < static_cast<std::size_t>(at_once_) &&
           StartOf(replaced[end]) == start) {
      ++end;
    }
    const std::vector<double> found = RunTogether(*start, {&replaced[begin], end - begin});
    for (auto at = found.begin(); at != found.end(); at += batch_.size()) {
      metrics.emplace_back(at, at + batch_.size());
    }
  }
  return metrics;
}

MeanOutputs MeanOfCorrupted(const TaskRuns& runs) {
  const std::int64_t C = runs.config().width, Z = runs.config().heads_width();
  const std::int64_t layers = runs.config().layers, width = layers * (Z + C);
  const std::vector<double> sums =
      runs.SumOverItems(width, [&](std::size_t n, std::span<double> values) {
        const TaskBatch& batch = runs.batches()[n];
        const auto run = runs.Corrupted(n);
        const auto add = [&](const Buffer<float>& rows, std::int64_t first, std::int64_t count) {
          for (std::int64_t i = 0; i < rows.size(); ++i) {
            const std::int64_t item = i / (batch.length * count);
            values[static_cast<std::size_t>(item * width + first + i % count)] += rows[i];
          }
        };
        for (std::int64_t layer = 0; layer < layers; ++layer) {
          add(run->z[static_cast<std::size_t>(layer)], layer * Z, Z);
          add(run->mlp_out[static_cast<std::size_t>(layer)], layers * Z + layer * C, C);
        }
      });
  std::int64_t rows = 0;
  for (const TaskBatch& batch : runs.batches()) rows += batch.size() * batch.length;
  MeanOutputs means;
  const auto mean = [&](std::int64_t first, std::int64_t count) {
    Buffer<float> row(count);
    for (std::int64_t i = 0; i < count; ++i) {
      row[i] =
          static_cast<float>(sums[static_cast<std::size_t>(first + i)] / static_cast<double>(rows));
    }
    return row;
  };
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    means.z.push_back(mean(layer * Z, Z));
    means.mlp_out.push_back(mean(layers * Z + layer * C, C));
  }
  return means;
}

std::vector<double> MetricsWithReplaced(const TaskRuns& runs, const std::vector<NodeSet>& replaced,
                                        const PatchOptions& options) {
  return OverBatches(runs, replaced.size(), options, Patched(runs, replaced));
}

NodeEffects PatchNodes(const TaskRuns& runs, const std::vector<std::int64_t>& nodes,
                       const PatchOptions& options) {
  const std::vector<NodeSet> sets = OneByOne(ResidualGraph(runs.config()), nodes);
  return Effects(runs, nodes, MetricsWithReplaced(runs, sets, options), options.direction);
}

NodeEffects PatchNodesByRerunning(const TaskRuns& runs, const std::vector<std::int64_t>& nodes,
                                  const PatchOptions& options) {
  const Model& model = runs.model();
  const ResidualGraph graph(model.config);
  const bool corrupted = options.direction == Direction::kDenoise;
  const auto run = [&](const TaskBatch& batch, const KeptRun&, const Replacement& replacement) {
    std::vector<std::vector<double>> metrics;
    Activations activations(model.config, batch.size(), batch.length, Keep::kNothing, 0);
    for (const std::int64_t node : nodes) {
      const NodeSet only = Only(graph, node);
      ReplaceOutputs hooks(graph, {&only, 1}, replacement, batch.length, 0);
      const Pass pass{
          .model = model, .batch = batch.size(), .length = batch.length, .hooks = &hooks};
      ForwardToFinalNorm(pass, batch.Prompts(corrupted).data(), activations);
      const Buffer<float> last =
          LastRows(batch.size(), batch.length, model.config.width, activations.ln_f);
      metrics.push_back(LastMetrics(pass, runs.set(), batch, last.data()));
    }
    return metrics;
  };
  return Effects(runs, nodes, OverBatches(runs, nodes.size(), options, run), options.direction);
}

}  // namespace clearhead
