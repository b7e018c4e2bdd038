// SPDX-License-Identifier: MIT
#include "circuits/attention_edges.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "model/run.h"

namespace clearhead {
namespace {

constexpr int kRounds = 5;  // each divides the range of counts by kPerRound + 1
constexpr std::int64_t kPerRound = 7;

// Heads outside the circuit replaced; weights of the circuit's heads kept, or cut below a
// threshold.
class CircuitPatterns final : public ReplaceOutputs {
 public:
  using Weights = std::vector<std::vector<float>>;  // by head of the circuit, [B,T,T]

  CircuitPatterns(const ResidualGraph& graph, const NodeSet& others, const Replacement& replacement,
                  std::int64_t length, std::span<const std::int64_t> heads, Weights& weights)
      : ReplaceOutputs(graph, {&others, 1}, replacement, length, 0),
        graph_(graph),
        heads_(heads),
        weights_(weights) {}

  // From here on, weights that were below `threshold` when they were kept become 0.
  void Cut(float threshold) {
    cutting_ = true;
    threshold_ = threshold;
  }

  bool Wants(TapId id) const override {
    if (id.tap != Tap::kPattern) return ReplaceOutputs::Wants(id);
    return std::any_of(heads_.begin(), heads_.end(),
                       [&](std::int64_t head) { return graph_.LayerOf(head) == id.layer; });
  }
  bool Changes(TapId id) const override { return Wants(id); }

  void Visit(TapId id, const TensorView<float>& value) override {
    if (id.tap != Tap::kPattern) return ReplaceOutputs::Visit(id, value);
    const std::int64_t B = value.shape[0], H = value.shape[1], TT = value.shape[2] * value.shape[3];
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      if (graph_.LayerOf(heads_[i]) != id.layer) continue;
      if (!cutting_) weights_[i].resize(static_cast<std::size_t>(B * TT));
      for (std::int64_t b = 0; b < B; ++b) {
        float* matrix = value.data + (b * H + graph_.HeadOf(heads_[i])) * TT;
        float* kept = weights_[i].data() + b * TT;
        if (!cutting_) {
          std::copy(matrix, matrix + TT, kept);
          continue;
        }
        for (std::int64_t n = 0; n < TT; ++n) {
          if (kept[n] < threshold_) matrix[n] = 0.0f;
        }
      }
    }
  }

 private:
  const ResidualGraph& graph_;
  std::span<const std::int64_t> heads_;
  Weights& weights_;
  bool cutting_ = false;
  float threshold_ = 0.0f;
};

// Of all heads of the circuit and all prompts of this rank.
struct EdgeCounts {
  std::int64_t all = 0, open = 0;
};

struct Counter {
  const TaskRuns& runs;
  std::span<const std::int64_t> heads;
  ResidualGraph graph;
  std::vector<CircuitPatterns::Weights> weights;  // by batch

  // The circuit itself (no thresholds: keeps the weights) or with weights below each threshold cut;
  // mean metrics.
  std::vector<double> Run(const std::vector<float>& thresholds, EdgeCounts* counts) {
    const NodeSet others = OtherHeads(graph, heads);
    const Model& model = runs.model();
    const TaskSet& set = runs.set();
    std::vector<std::vector<double>> metrics(std::max<std::size_t>(thresholds.size(), 1),
                                             std::vector<double>(set.items.size()));
    for (std::size_t n = 0; n < runs.batches().size(); ++n) {
      if (!runs.Owns(n)) continue;
      const TaskBatch& batch = runs.batches()[n];
      const auto corrupted = runs.Corrupted(n);
      const Replacement replacement{.z = &corrupted->z, .mlp_out = &corrupted->mlp_out};
      CircuitPatterns hooks(graph, others, replacement, batch.length, heads, weights[n]);
      Activations activations(model.config, batch.size(), batch.length, Keep::kNothing, 0);
      for (std::size_t i = 0; i < metrics.size(); ++i) {
        if (!thresholds.empty()) hooks.Cut(thresholds[i]);
        const Pass pass{
            .model = model, .batch = batch.size(), .length = batch.length, .hooks = &hooks};
        ForwardToFinalNorm(pass, batch.clean.data(), activations);
        const Buffer<float> last =
            LastRows(batch.size(), batch.length, model.config.width, activations.ln_f);
        const std::vector<double> found = LastMetrics(pass, set, batch, last.data());
        for (std::size_t b = 0; b < found.size(); ++b) metrics[i][batch.items[b]] = found[b];
      }
      if (counts != nullptr) Count(batch, activations, counts);
    }
    return runs.MeansOf(metrics);
  }

  void Count(const TaskBatch& batch, const Activations& activations, EdgeCounts* counts) const {
    const std::int64_t B = batch.size(), H = graph.heads();
    const std::int64_t pairs = batch.length * (batch.length + 1) / 2;
    for (const std::int64_t head : heads) {
      counts->all += B * pairs;
      for (std::int64_t b = 0; b < B; ++b) {
        const std::int64_t at = (graph.LayerOf(head) * B + b) * H + graph.HeadOf(head);
        counts->open += runs.config().attention == AttentionKind::kGated
                            ? static_cast<std::int64_t>(activations.open_edges[at])
                            : pairs;
      }
    }
  }
};

}  // namespace

AttentionEdges CountAttentionEdges(const TaskRuns& runs, std::span<const std::int64_t> heads,
                                   const CircuitCurve& curve) {
  AttentionEdges edges;
  if (heads.empty()) return edges;
  Counter counter{.runs = runs, .heads = heads, .graph = ResidualGraph(runs.config())};
  counter.weights.resize(runs.batches().size(), CircuitPatterns::Weights(heads.size()));
  EdgeCounts counted;
  const double circuit = counter.Run({}, &counted)[0];
  const auto items = static_cast<double>(runs.set().items.size());
  edges.all = runs.ranks().Sum(static_cast<double>(counted.all)) / items;
  edges.open = runs.ranks().Sum(static_cast<double>(counted.open)) / items;
  const double effect = curve.full - curve.empty;
  const auto faithfulness = [&](double metric) { return (metric - curve.empty) / effect; };

  std::vector<float> own;
  for (const CircuitPatterns::Weights& batch : counter.weights) {
    for (const std::vector<float>& head : batch) {
      std::copy_if(head.begin(), head.end(), std::back_inserter(own),
                   [](float weight) { return weight > 0.0f; });
    }
  }
  std::vector<float> sorted = GatherAll(runs.ranks(), own);  // every weight above 0, largest first
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto cut_at = [&](std::int64_t count) {  // weights of at least this are kept
    return count == 0 ? std::numeric_limits<float>::infinity()
                      : sorted[static_cast<std::size_t>(count - 1)];
  };
  // The smallest number that is enough lies in (low, high]; numbers in geometric steps.
  std::int64_t low = -1, high = static_cast<std::int64_t>(sorted.size());
  double found = faithfulness(circuit);
  for (int round = 0; round < kRounds && high - low > 1; ++round) {
    std::vector<std::int64_t> counts;
    std::vector<float> thresholds;
    for (std::int64_t i = 1; i <= kPerRound; ++i) {
      const double ratio = static_cast<double>(high + 1) / static_cast<double>(low + 2);
      const double share = static_cast<double>(i) / static_cast<double>(kPerRound + 1);
      const auto count = std::clamp(static_cast<std::int64_t>(std::lround(
                                        static_cast<double>(low + 2) * std::pow(ratio, share))) -
                                        1,
                                    low + 1, high - 1);
      if (!counts.empty() && counts.back() == count) continue;
      counts.push_back(count);
      thresholds.push_back(cut_at(count));
    }
    const std::vector<double> metrics = counter.Run(thresholds, nullptr);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (faithfulness(metrics[i]) >= faithfulness(circuit) - kAttentionEdgeTolerance) {
        high = counts[i];
        found = faithfulness(metrics[i]);
        break;
      }
      low = counts[i];
    }
  }
  const float threshold = cut_at(high);
  edges.kept = static_cast<double>(std::count_if(sorted.begin(), sorted.end(),
                                                 [&](float w) { return w >= threshold; })) /
               items;
  edges.kept_faithfulness = found;
  edges.threshold = high == 0 ? 0.0 : static_cast<double>(threshold);
  return edges;
}

}  // namespace clearhead
