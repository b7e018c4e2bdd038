// SPDX-License-Identifier: MIT
#include "features/attribution_graph.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/threads.h"
#include "features/frozen_linear.h"
#include "features/influence.h"
#include "kernels/gemm.h"
#include "model/head_weights.h"
#include "use/predict.h"

namespace clearhead {
namespace {

// Rows of the matrix while they are being made, in any order.
class GraphBuilder {
 public:
  GraphBuilder(const FrozenPrompt& run, const GraphOptions& options)
      : run_(run), options_(options), features_(ActiveFeaturesOf(run)) {
    graph_.logits = ChooseLogits(run, options.logits);
    graph_.nodes = {.features = static_cast<std::int64_t>(features_.size()),
                    .layers = run.config().layers,
                    .length = run.length(),
                    .logits = static_cast<std::int64_t>(graph_.logits.size()),
                    .positions = run.positions.size() > 0};
    written_.emplace(run, features_, graph_.nodes);
    const std::int64_t traced = options.max_features > 0
                                    ? std::min(options.max_features, graph_.nodes.features)
                                    : graph_.nodes.features;
    graph_.edges = Buffer<float>((traced + graph_.nodes.logits) * graph_.nodes.columns());
    total_ = traced;
  }

  AttributionGraph Build() {
    // The logits' rows come first, as their place is then known; Finish puts them last.
    AddLogits();
    if (total_ == graph_.nodes.features) {
      std::vector<std::int64_t> all(static_cast<std::size_t>(total_));
      std::iota(all.begin(), all.end(), 0);
      AddFeatures(all);
    } else {
      const std::int64_t step = std::max<std::int64_t>(64, (total_ + 15) / 16);
      while (CountTraced() < total_) {
        const std::vector<std::int64_t> next =
            MostInfluential(std::min(step, total_ - CountTraced()));
        if (next.empty()) break;
        AddFeatures(next);
      }
    }
    return Finish();
  }

 private:
  std::int64_t CountTraced() const {
    return static_cast<std::int64_t>(row_nodes_.size()) - graph_.nodes.logits;
  }
  float* NewRow(std::int64_t node) {
    float* row =
        graph_.edges.data() + static_cast<std::int64_t>(row_nodes_.size()) * graph_.nodes.columns();
    std::fill_n(row, graph_.nodes.columns(), 0.0f);
    row_nodes_.push_back(node);
    return row;
  }

  void AddLogits() {
    if (graph_.logits.empty()) return;
    const std::vector<std::int64_t> positions(graph_.logits.size(), graph_.logits[0].position);
    TargetRows gradient(positions, run_.config().width);
    std::vector<double> bias(positions.size(), 0.0);
    std::vector<float*> rows;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      FinalGradient(run_, positions[i], DirectionOf(run_, graph_.logits[i]),
                    gradient.Row(static_cast<std::int64_t>(i), positions[i]), bias[i]);
      rows.push_back(NewRow(graph_.nodes.Logit(static_cast<std::int64_t>(i))));
    }
    Sweep(run_.config().layers, gradient, bias, rows);
  }

  // Features in ascending order, cut into batches of one layer.
  void AddFeatures(const std::vector<std::int64_t>& list) {
    std::size_t begin = 0;
    while (begin < list.size()) {
      const std::int32_t layer = features_[list[begin]].layer;
      std::size_t end = begin;
      std::int64_t rows = 0;
      while (end < list.size() && features_[list[end]].layer == layer &&
             static_cast<std::int64_t>(end - begin) < options_.batch_targets &&
             (end == begin || rows + features_[list[end]].position < options_.batch_rows)) {
        rows += features_[list[end++]].position + 1;
      }
      AddBatch(layer, {list.data() + begin, end - begin});
      begin = end;
      if (options_.on_progress) options_.on_progress(CountTraced(), total_);
    }
  }

  void AddBatch(std::int64_t layer, std::span<const std::int64_t> batch) {
    std::vector<std::int64_t> positions;
    for (const std::int64_t f : batch) positions.push_back(features_[f].position);
    TargetRows gradient(positions, run_.config().width);
    std::vector<double> bias(batch.size(), 0.0);
    std::vector<float*> rows;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      EncoderGradient(run_, layer, positions[i], features_[batch[i]].feature,
                      gradient.Row(static_cast<std::int64_t>(i), positions[i]), bias[i]);
      rows.push_back(NewRow(batch[i]));
    }
    FrozenAttentionBackward(run_, layer, gradient, bias, scratch_);
    Sweep(layer, gradient, bias, rows);
  }

  // From the gradient of the stream in front of `layer` down to the embeddings.
  void Sweep(std::int64_t layer, TargetRows& gradient, std::span<double> bias,
             std::span<float* const> rows) {
    for (std::int64_t l = layer - 1; l >= 0; --l) {
      ReadEdges(l, gradient, rows);
      FrozenMlpBackward(run_, l, gradient, bias, scratch_);
      FrozenAttentionBackward(run_, l, gradient, bias, scratch_);
    }
    ReadEdges(-1, gradient, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i][graph_.nodes.Bias()] = static_cast<float>(bias[i]);
    }
  }

  // Edges from everything that is written into the MLP output of `layer` (-1: the embeddings).
  void ReadEdges(std::int64_t layer, const TargetRows& gradient, std::span<float* const> rows) {
    const std::int64_t C = run_.config().width;
    ParallelFor(gradient.reach(), [&](std::int64_t p) {
      const WrittenRows::Block block = written_->At(layer, p);
      thread_local std::vector<float> product;
      product.resize(static_cast<std::size_t>(gradient.count(p) * block.count));
      Gemm({gradient.count(p), block.count, C}, {gradient.Block(p), C},
           {block.rows, C, Op::kTranspose}, product.data(), block.count, /*accumulate=*/false);
      for (std::int64_t i = 0; i < gradient.count(p); ++i) {
        float* row = rows[gradient.first(p) + i];
        const float* from = product.data() + i * block.count;
        for (std::int64_t j = 0; j < block.count; ++j) row[block.nodes[j]] += from[j];
      }
    });
  }

  std::vector<std::int64_t> SortedRows() const {
    std::vector<std::int64_t> order(row_nodes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::int64_t a, std::int64_t b) { return row_nodes_[a] < row_nodes_[b]; });
    return order;
  }

  // Features without a row that influence the logits most, ascending.
  std::vector<std::int64_t> MostInfluential(std::int64_t count) const {
    std::vector<TracedRow> rows;
    for (const std::int64_t r : SortedRows()) {
      rows.push_back({row_nodes_[r], graph_.edges.data() + r * graph_.nodes.columns()});
    }
    std::vector<double> influence = Influence(graph_.nodes, rows, LogitWeights(graph_));
    for (const std::int64_t node : row_nodes_) influence[node] = 0.0;
    std::vector<std::int64_t> order(static_cast<std::size_t>(graph_.nodes.features));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return influence[a] > influence[b]; });
    order.resize(static_cast<std::size_t>(count));
    while (!order.empty() && influence[order.back()] <= 0.0) order.pop_back();
    std::sort(order.begin(), order.end());
    return order;
  }

  AttributionGraph Finish() {
    const std::int64_t columns = graph_.nodes.columns();
    std::vector<std::int64_t> order = SortedRows();
    // Row order[i] goes to place i: follow each cycle of the permutation.
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::size_t at = i;
      while (order[at] != static_cast<std::int64_t>(i)) {
        const auto from = static_cast<std::size_t>(order[at]);
        float* a = graph_.edges.data() + static_cast<std::int64_t>(at) * columns;
        std::swap_ranges(a, a + columns, graph_.edges.data() + order[at] * columns);
        order[at] = static_cast<std::int64_t>(at);
        at = from;
      }
      order[at] = static_cast<std::int64_t>(at);
    }
    std::sort(row_nodes_.begin(), row_nodes_.end());
    for (const std::int64_t node : row_nodes_) {
      if (node >= columns) break;
      graph_.traced.push_back(node);
      graph_.targets.push_back(features_[node].activation);
    }
    for (const LogitTarget& logit : graph_.logits) graph_.targets.push_back(logit.value);
    graph_.features = std::move(features_);
    return std::move(graph_);
  }

  const FrozenPrompt& run_;
  const GraphOptions& options_;
  std::vector<ActiveFeature> features_;
  AttributionGraph graph_;
  std::optional<WrittenRows> written_;
  std::vector<std::int64_t> row_nodes_;
  std::int64_t total_ = 0;
  SweepScratch scratch_;
};

}  // namespace

std::vector<LogitTarget> ChooseLogits(const FrozenPrompt& run, const LogitOptions& options) {
  const std::int64_t V = run.config().vocabulary;
  const std::int64_t position = options.position.value_or(run.length() - 1);
  if (position < 0 || position >= run.length()) {
    Fail("position {} is outside the prompt of {} tokens (0 to {})", position, run.length(),
         run.length() - 1);
  }
  const std::vector<float> logits = LogitsAt(run, position);
  const double normalizer = LogSumExp(logits);
  const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / static_cast<double>(V);
  const auto check = [&](std::int32_t token) {
    if (token < 0 || token >= V) {
      Fail("token {} is outside the vocabulary of {}: 0 to {}", token, V, V - 1);
    }
  };
  if (options.contrast) {
    const auto [a, b] = *options.contrast;
    check(a);
    check(b);
    if (a == b) Fail("a contrast needs two different tokens, both are {}", a);
    return {{.token = a,
             .against = b,
             .position = position,
             .probability = 1.0,
             .value = double{logits[a]} - logits[b]}};
  }
  std::vector<std::int32_t> tokens = options.tokens;
  if (tokens.empty()) {
    double mass = 0.0;
    for (const Prediction& p : Likeliest(logits, std::min(options.most, V))) {
      if (mass >= options.mass) break;
      tokens.push_back(p.token);
      mass += p.probability;
    }
  }
  std::vector<LogitTarget> targets;
  for (const std::int32_t token : tokens) {
    check(token);
    if (std::any_of(targets.begin(), targets.end(),
                    [&](const LogitTarget& t) { return t.token == token; })) {
      Fail("token {} is given twice as a target", token);
    }
    targets.push_back({.token = token,
                       .position = position,
                       .probability = std::exp(logits[token] - normalizer),
                       .value = logits[token] - mean});
  }
  return targets;
}

std::vector<float> DirectionOf(const FrozenPrompt& run, const LogitTarget& target) {
  const std::int64_t C = run.config().width, V = run.config().vocabulary;
  std::vector<float> direction = OutputRow(*run.model, target.token);
  std::vector<float> base(static_cast<std::size_t>(C));
  if (target.against) {
    base = OutputRow(*run.model, *target.against);
  } else {
    const std::vector<float> share(static_cast<std::size_t>(V), 1.0f / static_cast<float>(V));
    LinearBackwardInput(OutputLayer(*run.model), 1, share.data(), base.data());
  }
  for (std::size_t i = 0; i < direction.size(); ++i) direction[i] -= base[i];
  return direction;
}

AttributionGraph Trace(const FrozenPrompt& run, const GraphOptions& options) {
  return GraphBuilder(run, options).Build();
}

AttributionGraph CompatibleGraph(const AttributionGraph& graph) {
  AttributionGraph out;
  std::vector<std::int64_t> kept;  // columns that remain
  std::vector<std::int64_t> index(static_cast<std::size_t>(graph.nodes.features), -1);
  for (std::int64_t f = 0; f < graph.nodes.features; ++f) {
    if (graph.features[f].position == 0) continue;
    index[f] = static_cast<std::int64_t>(kept.size());
    out.features.push_back(graph.features[f]);
    kept.push_back(f);
  }
  out.nodes = graph.nodes;
  out.nodes.features = static_cast<std::int64_t>(kept.size());
  out.nodes.positions = out.nodes.bias = false;
  for (std::int64_t node = graph.nodes.Error(0, 0); node < graph.nodes.Token(graph.nodes.length);
       ++node) {
    const bool blank =
        graph.nodes.KindOf(node) == NodeKind::kError && graph.nodes.PositionOf(node) == 0;
    kept.push_back(blank ? -1 : node);
  }
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < graph.rows(); ++r) {
    const std::int64_t node = graph.NodeOfRow(r);
    if (node < graph.nodes.features) {
      if (index[node] < 0) continue;
      out.traced.push_back(index[node]);
    }
    rows.push_back(r);
    out.targets.push_back(graph.targets[r]);
  }
  out.logits = graph.logits;
  out.edges = Buffer<float>(out.rows() * out.nodes.columns());
  float* to = out.edges.data();
  for (const std::int64_t r : rows) {
    for (const std::int64_t node : kept) *to++ = node < 0 ? 0.0f : graph.Row(r)[node];
  }
  return out;
}

}  // namespace clearhead
