// SPDX-License-Identifier: MIT
#include "circuits/edge_circuit.h"

#include <algorithm>

#include "circuits/source_rows.h"
#include "core/error.h"
#include "core/threads.h"
#include "model/head_weights.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Positions from `first` on of every sequence in rows [B*T, width].
template <typename T>
Buffer<T> From(std::int64_t first, const TaskBatch& batch, const T* rows, std::int64_t width) {
  const std::int64_t n = batch.length - first;
  Buffer<T> kept(batch.size() * n * width);
  for (std::int64_t b = 0; b < batch.size(); ++b) {
    const T* begin = rows + (b * batch.length + first) * width;
    std::copy(begin, begin + n * width, kept.data() + b * n * width);
  }
  return kept;
}

// What the plain runs over a batch say about the sources, behind the beginning that the twins
// share: there every circuit gives the same, and its keys and values are in corrupted_run.cache.
struct SourceRuns {
  TaskBatch rest;                 // R rows
  Buffer<float> corrupted;        // [R, S, C]
  Buffer<float> input;            // [R, C] embeddings, clean - corrupted
  KeptRun corrupted_run;          // its rows likewise
  std::vector<float> final_rows;  // [R, C] stream after the last block, corrupted
};

SourceRuns RunSources(const TaskRuns& task, const ResidualGraph& graph, std::size_t n) {
  const TaskBatch& batch = task.batches()[n];
  const std::int64_t C = task.config().width, first = batch.shared;
  const auto whole = task.Corrupted(n);
  SourceRuns runs{
      .corrupted_run = {.cache = KeyValueCache(task.config(), batch.size(), batch.length)}};
  KeptRun& run = runs.corrupted_run;
  const auto rest_of = [&](const std::vector<Buffer<float>>& layers) {
    std::vector<Buffer<float>> rest;
    for (const Buffer<float>& rows : layers) {
      const std::int64_t width = rows.size() / (batch.size() * batch.length);
      rest.push_back(From(first, batch, rows.data(), width));
    }
    return rest;
  };
  run.resid_pre = rest_of(whole->resid_pre);
  run.resid_mid = rest_of(whole->resid_mid);
  run.z = rest_of(whole->z);
  run.mlp_out = rest_of(whole->mlp_out);
  run.attention_scale = rest_of(whole->attention_scale);
  for (std::size_t layer = 0; layer < run.cache.keys.size(); ++layer) {
    std::copy(whole->cache.keys[layer].begin(), whole->cache.keys[layer].end(),
              run.cache.keys[layer].begin());
    std::copy(whole->cache.values[layer].begin(), whole->cache.values[layer].end(),
              run.cache.values[layer].begin());
  }
  runs.rest = {.items = batch.items, .length = batch.length - first};
  const Buffer<std::int32_t> ids = From(first, batch, batch.corrupted.data(), 1);
  runs.rest.corrupted.assign(ids.begin(), ids.end());
  runs.corrupted = SourceRowsOf(task.model(), graph, runs.rest, run);
  runs.input = From(first, batch, task.Clean(n)->resid_pre[0].data(), C);
  for (std::int64_t i = 0; i < runs.input.size(); ++i) {
    runs.input[i] -= run.resid_pre[0][i];
    runs.final_rows.push_back(run.resid_mid.back()[i] + run.mlp_out.back()[i]);
  }
  return runs;
}

class EdgeHooks final : public Hooks {
 public:
  // changes: [R, S, C], filled as the run goes: what a source writes now - what it wrote corrupted.
  EdgeHooks(const Model& model, const ResidualGraph& graph, const SourceRuns& runs,
            const EdgeSet& edges, Buffer<float>& changes)
      : model_(model),
        norm_behind_(model.config.norm_place == NormPlace::kAfter),
        graph_(graph),
        runs_(runs),
        changes_(changes) {
    sources_.resize(static_cast<std::size_t>(graph.reader_count()));
    for (std::int64_t reader = 0; reader < graph.reader_count(); ++reader) {
      for (std::int64_t source = 0; source < graph.SourcesOf(reader); ++source) {
        if (edges[static_cast<std::size_t>(graph.Edge(source, reader))]) {
          sources_[static_cast<std::size_t>(reader)].push_back(source);
        }
      }
    }
  }

  bool Wants(TapId id) const override {
    return Changes(id) || id.tap == Tap::kResult || id.tap == Tap::kMlpOut ||
           (id.tap == Tap::kLn1Scale && norm_behind_) ||
           (id.tap == Tap::kResidPre && id.layer == 0);
  }
  bool Changes(TapId id) const override {
    switch (id.tap) {
      case Tap::kQInput:
      case Tap::kKInput:
      case Tap::kVInput:
      case Tap::kMlpIn:
        return true;
      case Tap::kResidPost:
        return id.layer == graph_.layers() - 1;
      default:
        return false;
    }
  }

  void Visit(TapId id, const TensorView<float>& value) override {
    const auto layer = static_cast<std::size_t>(id.layer);
    const KeptRun& corrupted = runs_.corrupted_run;
    switch (id.tap) {
      case Tap::kResidPre:
        return KeepInput(value.shape[2]);
      case Tap::kQInput:
        return Read(graph_.HeadReader(id.layer, 0, 0), corrupted.resid_pre[layer].data(), value);
      case Tap::kKInput:
        return Read(graph_.HeadReader(id.layer, 1, 0), corrupted.resid_pre[layer].data(), value);
      case Tap::kVInput:
        return Read(graph_.HeadReader(id.layer, 2, 0), corrupted.resid_pre[layer].data(), value);
      case Tap::kMlpIn:
        return Read(graph_.MlpReader(id.layer), corrupted.resid_mid[layer].data(), value);
      case Tap::kResidPost:
        return Read(graph_.LogitsReader(), runs_.final_rows.data(), value);
      case Tap::kResult:
        if (norm_behind_) return KeepResults(value);
        return Write(graph_.Head(id.layer, 0), value);
      case Tap::kLn1Scale:
        return WriteNormed(id.layer, value.data);
      case Tap::kMlpOut:
        return Write(graph_.Mlp(id.layer), value);
      default:
        return;
    }
  }

 private:
  void KeepInput(std::int64_t C) {
    const std::int64_t S = graph_.source_count();
    for (std::int64_t i = 0; i < runs_.input.size(); ++i) {
      changes_[i / C * S * C + i % C] = runs_.input[i];
    }
  }

  // Readers first, first + 1, ... for the views [B,T,G,C]; one for [B,T,C].
  void Read(std::int64_t first, const float* stream, const TensorView<float>& value) {
    const std::int64_t S = graph_.source_count();
    const std::int64_t G = value.shape.rank() == 4 ? value.shape[2] : 1;
    const std::int64_t C = value.shape[value.shape.rank() - 1];
    ParallelRanges(value.shape[0] * value.shape[1], [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t g = 0; g < G; ++g) {
          float* out = value.data + (row * G + g) * C;
          std::copy(stream + row * C, stream + (row + 1) * C, out);
          for (const std::int64_t source : sources_[static_cast<std::size_t>(first + g)]) {
            const float* change = changes_.data() + (row * S + source) * C;
            for (std::int64_t i = 0; i < C; ++i) out[i] += change[i];
          }
        }
      }
    });
  }

  void Write(std::int64_t first, const TensorView<float>& value) {
    const std::int64_t S = graph_.source_count();
    const std::int64_t width = value.shape.size() / value.shape[0] / value.shape[1];  // G * C
    const std::int64_t C = value.shape[value.shape.rank() - 1];
    ParallelRanges(value.shape[0] * value.shape[1], [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t to = (row * S + first) * C;
        for (std::int64_t i = 0; i < width; ++i) {
          changes_[to + i] = value.data[row * width + i] - runs_.corrupted[to + i];
        }
      }
    });
  }

  // A norm stands between the heads' results [B,T,H,C] and the stream: they wait for its scale.
  void KeepResults(const TensorView<float>& value) {
    if (results_.size() != value.shape.size()) results_ = Buffer<float>(value.shape.size());
    std::copy(value.data, value.data + value.shape.size(), results_.data());
  }

  void WriteNormed(std::int64_t layer, const float* scale) {
    const std::int64_t C = model_.config.width, H = model_.config.heads;
    const std::int64_t rows = results_.size() / (H * C);
    const Norm norm = LayersOf(model_, layer).attention_norm;
    for (std::int64_t h = 0; h < H; ++h) {
      ScaleByNorm(norm, rows, scale, H * C, results_.data() + h * C);
    }
    Write(graph_.Head(layer, 0), {results_.data(), {rows, 1, H, C}});
  }

  const Model& model_;
  bool norm_behind_;
  Buffer<float> results_;
  const ResidualGraph& graph_;
  const SourceRuns& runs_;
  Buffer<float>& changes_;
  std::vector<std::vector<std::int64_t>> sources_;  // by reader
};

}  // namespace

EdgeSet PruneEdges(const ResidualGraph& graph, const EdgeSet& edges) {
  // Nodes are numbered in the order they run: one sweep each way finds all paths.
  NodeSet from_input(static_cast<std::size_t>(graph.node_count()), false), to_logits = from_input;
  from_input[static_cast<std::size_t>(graph.input())] = true;
  to_logits[static_cast<std::size_t>(graph.logits())] = true;
  const auto for_edges = [&](const auto& visit, std::int64_t reader) {
    const auto node = static_cast<std::size_t>(graph.NodeOfReader(reader));
    for (std::int64_t source = 0; source < graph.SourcesOf(reader); ++source) {
      const auto edge = static_cast<std::size_t>(graph.Edge(source, reader));
      if (edges[edge]) visit(static_cast<std::size_t>(source), node, edge);
    }
  };
  for (std::int64_t reader = 0; reader < graph.reader_count(); ++reader) {
    for_edges(
        [&](std::size_t source, std::size_t node, std::size_t) {
          if (from_input[source]) from_input[node] = true;
        },
        reader);
  }
  for (std::int64_t reader = graph.reader_count() - 1; reader >= 0; --reader) {
    for_edges(
        [&](std::size_t source, std::size_t node, std::size_t) {
          if (to_logits[node]) to_logits[source] = true;
        },
        reader);
  }
  EdgeSet kept(edges.size(), false);
  for (std::int64_t reader = 0; reader < graph.reader_count(); ++reader) {
    for_edges([&](std::size_t source, std::size_t node,
                  std::size_t edge) { kept[edge] = from_input[source] && to_logits[node]; },
              reader);
  }
  return kept;
}

NodeSet NodesOf(const ResidualGraph& graph, const EdgeSet& edges) {
  NodeSet nodes(static_cast<std::size_t>(graph.node_count()), false);
  for (std::int64_t reader = 0; reader < graph.reader_count(); ++reader) {
    for (std::int64_t source = 0; source < graph.SourcesOf(reader); ++source) {
      if (!edges[static_cast<std::size_t>(graph.Edge(source, reader))]) continue;
      nodes[static_cast<std::size_t>(source)] = true;
      nodes[static_cast<std::size_t>(graph.NodeOfReader(reader))] = true;
    }
  }
  return nodes;
}

std::vector<double> MetricsOfEdgeSets(const TaskRuns& task, const std::vector<EdgeSet>& sets) {
  const Model& model = task.model();
  const TaskSet& set = task.set();
  Check(model.config.kv_heads() == model.config.heads,
        "an edge ends in one head's keys or values: Ungroup the model first");
  const ResidualGraph graph(model.config);
  std::vector<std::vector<double>> metrics(sets.size(), std::vector<double>(set.items.size()));
  for (std::size_t n = 0; n < task.batches().size(); ++n) {
    if (!task.Owns(n)) continue;
    const TaskBatch& batch = task.batches()[n];
    SourceRuns runs = RunSources(task, graph, n);
    const std::int64_t length = runs.rest.length;
    KeyValueCache& cache = runs.corrupted_run.cache;
    Activations activations(model.config, batch.size(), length, Keep::kNothing, 0);
    Buffer<float> changes(runs.corrupted.size());
    for (std::size_t s = 0; s < sets.size(); ++s) {
      EdgeHooks hooks(model, graph, runs, sets[s], changes);
      cache.length = batch.shared;
      const Pass pass{.model = model,
                      .batch = batch.size(),
                      .length = length,
                      .hooks = &hooks,
                      .cache = &cache};
      ForwardToFinalNorm(pass, runs.rest.corrupted.data(), activations);
      const Buffer<float> last =
          LastRows(batch.size(), length, model.config.width, activations.ln_f);
      const std::vector<double> found = LastMetrics(pass, set, batch, last.data());
      for (std::size_t b = 0; b < found.size(); ++b) metrics[s][batch.items[b]] = found[b];
    }
  }
  return task.MeansOf(metrics);
}

EdgeCircuit TraceEdges(const TaskRuns& runs, const std::vector<double>& scores, double full,
                       const CurveOptions& options, const OnProgress& on_progress) {
  const ResidualGraph graph(runs.config());
  const auto pruned = [&](std::span<const std::int64_t> edges) {
    EdgeSet chosen(static_cast<std::size_t>(graph.edge_count()), false);
    for (const std::int64_t edge : edges) chosen[static_cast<std::size_t>(edge)] = true;
    return PruneEdges(graph, chosen);
  };
  std::int64_t done = 0;
  const MeasureSets measure = [&](const std::vector<std::vector<std::int64_t>>& sets) {
    std::vector<double> metrics;
    // A few at a time, for the sake of the progress: the plain runs are cheap beside them.
    for (std::size_t first = 0; first < sets.size(); first += 8) {
      std::vector<EdgeSet> chosen;
      for (std::size_t i = first; i < std::min(first + 8, sets.size()); ++i) {
        chosen.push_back(pruned(sets[i]));
      }
      const std::vector<double> found = MetricsOfEdgeSets(runs, chosen);
      metrics.insert(metrics.end(), found.begin(), found.end());
      done += static_cast<std::int64_t>(chosen.size());
      if (on_progress) on_progress(done, 0);
    }
    return metrics;
  };
  EdgeCircuit circuit{.order = RankByImportance(scores)};
  circuit.curve = TraceCurve(circuit.order, full, measure, options);
  for (const CircuitMark& mark : circuit.curve.marks) {
    circuit.at.push_back(
        pruned(std::span(circuit.order).first(static_cast<std::size_t>(mark.size))));
  }
  return circuit;
}

}  // namespace clearhead
