// SPDX-License-Identifier: MIT
#include "circuits/attribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "circuits/metric_gradient.h"
#include "circuits/source_rows.h"
#include "core/error.h"
#include "core/threads.h"
#include "kernels/gemm.h"
#include "model/head_weights.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Multiplies the gradients that pass by with the differences of the sources.
class ScoreHooks final : public Hooks {
 public:
  // differences [B*T, S, C]. `mixed_in`: how much of the corrupted embeddings replaces the clean.
  // Adds to scores [B, nodes | edges].
  ScoreHooks(const ResidualGraph& graph, const TaskBatch& batch, const Buffer<float>& differences,
             bool edges, double mixed_in, double weight, std::span<double> scores)
      : graph_(graph),
        batch_(batch),
        differences_(differences),
        edges_(edges),
        mixed_in_(mixed_in),
        weight_(weight),
        scores_(scores) {}

  bool Wants(TapId id) const override { return id.tap == Tap::kEmbed && mixed_in_ > 0.0; }
  bool Changes(TapId id) const override { return Wants(id); }
  void Visit(TapId, const TensorView<float>& value) override {
    const std::int64_t C = value.shape[2], S = graph_.source_count();
    for (std::int64_t i = 0; i < value.shape.size(); ++i) {
      value.data[i] += static_cast<float>(mixed_in_) * differences_[i / C * S * C + i % C];
    }
  }

  bool WantsGradient(TapId id) const override {
    switch (id.tap) {
      case Tap::kQInput:
      case Tap::kKInput:
      case Tap::kVInput:
      case Tap::kMlpIn:
        return edges_;
      case Tap::kResidMid:
      case Tap::kResidPost:
        return true;
      case Tap::kResidPre:
        return id.layer == 0;
      default:
        return false;
    }
  }

  void VisitGradient(TapId id, const TensorView<float>& gradient) override {
    const std::int64_t last = graph_.layers() - 1;
    switch (id.tap) {
      case Tap::kQInput:
        return AddEdges(graph_.HeadReader(id.layer, 0, 0), gradient);
      case Tap::kKInput:
        return AddEdges(graph_.HeadReader(id.layer, 1, 0), gradient);
      case Tap::kVInput:
        return AddEdges(graph_.HeadReader(id.layer, 2, 0), gradient);
      case Tap::kMlpIn:
        return AddEdges(graph_.MlpReader(id.layer), gradient);
      case Tap::kResidMid:
        return AddNodes(graph_.Head(id.layer, 0), graph_.heads(), gradient);
      case Tap::kResidPost:
        AddNodes(graph_.Mlp(id.layer), 1, gradient);
        if (edges_ && id.layer == last) AddEdges(graph_.LogitsReader(), gradient);
        return;
      case Tap::kResidPre:
        return AddNodes(graph_.input(), 1, gradient);
      default:
        return;
    }
  }

 private:
  // products[b, s, g] = sum over positions of difference s of the item and its gradient g, for
  // sources first .. first + count - 1 and the gradients [B,T,(G),C]. Items side by side, each on
  // one thread.
  std::vector<float> Products(std::int64_t first, std::int64_t count,
                              const TensorView<float>& gradient) const {
    const std::int64_t S = graph_.source_count(), T = batch_.length;
    const std::int64_t G = gradient.shape.rank() == 4 ? gradient.shape[2] : 1;
    const std::int64_t C = gradient.shape[gradient.shape.rank() - 1];
    std::vector<float> products(static_cast<std::size_t>(batch_.size() * count * G), 0.0f);
    ParallelFor(batch_.size(), [&](std::int64_t b) {
      for (std::int64_t row = b * T + batch_.shared; row < (b + 1) * T; ++row) {
        Gemm({count, G, C}, {differences_.data() + (row * S + first) * C, C},
             {gradient.data + row * G * C, C, Op::kTranspose}, products.data() + b * count * G, G,
             /*accumulate=*/true);
      }
    });
    return products;
  }

  void AddEdges(std::int64_t first_reader, const TensorView<float>& gradient) {
    const std::int64_t count = graph_.SourcesOf(first_reader);
    const std::int64_t readers = gradient.shape.rank() == 4 ? gradient.shape[2] : 1;
    const std::vector<float> products = Products(0, count, gradient);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(products.size()); ++i) {
      const std::int64_t source = i / readers % count, reader = first_reader + i % readers;
      Score(i / (readers * count), graph_.node_count() + graph_.Edge(source, reader)) +=
          weight_ * static_cast<double>(products[static_cast<std::size_t>(i)]);
    }
  }

  void AddNodes(std::int64_t first, std::int64_t count, const TensorView<float>& gradient) {
    const std::vector<float> products = Products(first, count, gradient);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(products.size()); ++i) {
      Score(i / count, first + i % count) +=
          weight_ * static_cast<double>(products[static_cast<std::size_t>(i)]);
    }
  }

  double& Score(std::int64_t item, std::int64_t at) {
    const auto width = static_cast<std::int64_t>(scores_.size()) / batch_.size();
    return scores_[static_cast<std::size_t>(item * width + at)];
  }

  const ResidualGraph& graph_;
  const TaskBatch& batch_;
  const Buffer<float>& differences_;
  bool edges_;
  double mixed_in_, weight_;
  std::span<double> scores_;
};

}  // namespace

Attribution Attribute(const TaskRuns& runs, const AttributionOptions& options) {
  const Model& model = runs.model();
  const TaskSet& set = runs.set();
  Check(!options.edges || model.config.kv_heads() == model.config.heads,
        "an edge ends in one head's keys or values: Ungroup the model first");
  const ResidualGraph graph(model.config);
  const std::int64_t nodes = graph.node_count();
  const std::int64_t steps = std::max<std::int64_t>(options.steps, 1);
  const double weight = 1.0 / static_cast<double>(steps) / static_cast<double>(set.items.size());
  std::int64_t done = 0;
  const auto score = [&](std::size_t n, std::span<double> scores) {
    const TaskBatch& batch = runs.batches()[n];
    Buffer<float> differences = SourceRowsOf(model, graph, batch, *runs.Corrupted(n));
    {
      const Buffer<float> clean = SourceRowsOf(model, graph, batch, *runs.Clean(n));
      for (std::int64_t i = 0; i < clean.size(); ++i) differences[i] -= clean[i];
    }
    Activations activations(model.config, batch.size(), batch.length, Keep::kAll, 0);
    for (std::int64_t k = 0; k < steps; ++k) {
      const double mixed_in =
          options.steps == 0 ? 0.0 : 1.0 - static_cast<double>(k) / static_cast<double>(steps);
      ScoreHooks hooks(graph, batch, differences, options.edges, mixed_in, weight, scores);
      const Pass pass{
          .model = model, .batch = batch.size(), .length = batch.length, .hooks = &hooks};
      ForwardToFinalNorm(pass, batch.clean.data(), activations);
      BackwardFromMetric(pass, set, batch, batch.clean.data(), activations);
    }
    done += batch.size();
    if (options.on_progress) {
      const auto items = static_cast<std::int64_t>(set.items.size());
      options.on_progress(std::min(done * runs.ranks().size(), items), items);
    }
  };
  const std::vector<double> scores =
      runs.SumOverItems(nodes + (options.edges ? graph.edge_count() : 0), score);
  return {.nodes = {scores.begin(), scores.begin() + nodes},
          .edges = {scores.begin() + nodes, scores.end()}};
}

std::string AttributionName(const AttributionOptions& options) {
  return options.steps == 0 ? std::string("EAP (gradient on the clean run)")
                            : fmt::format("EAP-IG (inputs), {} steps", options.steps);
}

DirectContributions DirectLogitContributions(const TaskRuns& runs) {
  const Model& model = runs.model();
  const TaskSet& set = runs.set();
  Check(set.metric == TaskMetric::kLogitDifference, "only logits are sums");
  const ResidualGraph graph(model.config);
  const std::int64_t C = model.config.width, S = graph.source_count();
  const auto last = static_cast<std::size_t>(graph.layers() - 1);
  const Norm norm = FinalNormOf(model);
  const double share = 1.0 / static_cast<double>(set.items.size());
  const std::int64_t nodes = graph.node_count();
  // Of every item: the nodes, then the bias.
  const auto split = [&](std::size_t n, std::span<double> items) {
    const TaskBatch& batch = runs.batches()[n];
    const auto kept = runs.Clean(n);
    const KeptRun& run = *kept;
    const Buffer<float> sources = SourceRowsOf(model, graph, batch, run);
    for (std::int64_t b = 0; b < batch.size(); ++b) {
      const TaskItem& item = set.items[batch.items[static_cast<std::size_t>(b)]];
      const std::int64_t row = b * batch.length + batch.length - 1;
      double* const parts = items.data() + b * (nodes + 1);
      double& bias = parts[nodes];
      // The direction of the stream that the difference reads: unembedding, gain, centring, scale.
      std::vector<double> direction(static_cast<std::size_t>(C), 0.0);
      const auto add = [&](const std::vector<std::int32_t>& ids, double sign) {
        for (const std::int32_t id : ids) {
          const std::vector<float> token = OutputRow(model, id);
          for (std::size_t i = 0; i < token.size(); ++i) {
            direction[i] += sign / static_cast<double>(ids.size()) * static_cast<double>(token[i]);
          }
        }
      };
      add(item.answers, 1.0);
      add(item.wrongs, -1.0);
      std::vector<double> final_row(static_cast<std::size_t>(C));
      double mean = 0.0, centre = 0.0, squares = 0.0;
      for (std::int64_t i = 0; i < C; ++i) {
        final_row[static_cast<std::size_t>(i)] =
            static_cast<double>(run.resid_mid[last][row * C + i]) +
            static_cast<double>(run.mlp_out[last][row * C + i]);
        double& d = direction[static_cast<std::size_t>(i)];
        if (norm.bias != nullptr) bias += share * d * static_cast<double>(norm.bias[i]);
        if (norm.weight != nullptr) d *= static_cast<double>(norm.weight[i]);
        mean += d / static_cast<double>(C);
        centre += final_row[static_cast<std::size_t>(i)] / static_cast<double>(C);
      }
      if (norm.kind == NormKind::kRms) mean = centre = 0.0;  // it does not centre
      for (const double value : final_row) squares += (value - centre) * (value - centre);
      const double scale =
          std::sqrt(squares / static_cast<double>(C) + static_cast<double>(norm.epsilon));
      for (double& d : direction) d = (d - mean) / scale;
      // What no source wrote are the biases of the attention's output.
      double all = 0.0, written = 0.0;
      for (std::size_t i = 0; i < direction.size(); ++i) all += direction[i] * final_row[i];
      for (std::int64_t source = 0; source < S; ++source) {
        const float* vector = sources.data() + (row * S + source) * C;
        double along = 0.0;
        for (std::int64_t i = 0; i < C; ++i) {
          along += direction[static_cast<std::size_t>(i)] * static_cast<double>(vector[i]);
        }
        parts[source] += share * along;
        written += along;
      }
      bias += share * (all - written);
    }
  };
  const std::vector<double> sums = runs.SumOverItems(nodes + 1, split);
  return {.nodes = {sums.begin(), sums.begin() + nodes}, .bias = sums.back()};
}

}  // namespace clearhead
