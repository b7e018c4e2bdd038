// SPDX-License-Identifier: MIT
#include "features/carriers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "features/node_names.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

std::vector<std::int64_t> FeaturesAt(const AttributionGraph& graph, std::int64_t position) {
  std::vector<std::int64_t> list;
  for (std::int64_t f = 0; f < graph.nodes.features; ++f) {
    if (graph.features[f].position == position) list.push_back(f);
  }
  return list;
}

// The row of a traced feature, or none.
std::optional<std::int64_t> RowOf(const AttributionGraph& graph, std::int64_t feature) {
  const auto it = std::lower_bound(graph.traced.begin(), graph.traced.end(), feature);
  if (it == graph.traced.end() || *it != feature) return {};
  return it - graph.traced.begin();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Makes counts of one prompt.
class Counter {
 public:
  Counter(const FrozenPrompt& prompt, const AttributionGraph& graph, const GraphScores& scores,
          std::int64_t logit, std::int64_t query, std::int64_t key, double share)
      : prompt_(prompt),
        graph_(graph),
        scores_(scores),
        logit_(graph.logits[logit]),
        to_logit_(graph.Row(static_cast<std::int64_t>(graph.traced.size()) + logit)),
        query_(query),
        key_(key),
        share_(share),
        at_key_(FeaturesAt(graph, key)) {
    for (const std::int64_t f : FeaturesAt(graph, query)) {
      if (RowOf(graph, f)) at_query_.push_back(f);
    }
  }

  std::vector<CarrierCount> All() {
    const StreamVectors logit = ReadBy(prompt_, logit_);
    const std::string logit_name = "logit";
    if (!at_key_.empty() && !at_query_.empty()) {
      AddStrongestPair();
      const std::int64_t strongest = Largest(at_key_, [&](std::int64_t f) { return to_logit_[f]; });
      AddEdge("strongest feature to logit", NameOf(graph_.features[strongest]), logit_name,
              {strongest}, logit);
      AddPositionToFeature();
    }
    AddEdge("position to logit", fmt::format("all at {}", key_), logit_name,
            SourcesAt(graph_, key_), logit);
    AddEdge("token to logit", fmt::format("token@{}", key_), logit_name, {graph_.nodes.Token(key_)},
            logit);
    if (!at_key_.empty() && !at_query_.empty()) AddAllPairs();
    AddWeights();
    return std::move(counts_);
  }

 private:
  template <typename Value>
  std::int64_t Largest(const std::vector<std::int64_t>& list, const Value& value) const {
    return *std::max_element(list.begin(), list.end(), [&](std::int64_t a, std::int64_t b) {
      return std::abs(value(a)) < std::abs(value(b));
    });
  }

  CarrierCount& Add(const std::string& name, std::vector<double> values) {
    CarrierCount& count = counts_.emplace_back();
    count.name = name;
    count.heads = static_cast<double>(CountForShare(values, share_));
    count.contributing = CountNonzero(values);
    count.values = std::move(values);
    return count;
  }

  void AddEdge(const std::string& name, const std::string& from, const std::string& to,
               const std::vector<std::int64_t>& sources, const StreamVectors& target) {
    const HeadSplit split = SplitEdge(
        prompt_, WrittenBy(prompt_, graph_.features, graph_.nodes, sources), target, query_, key_);
    CarrierCount& count = Add(name, split.one_hop);
    count.from = from;
    count.to = to;
    count.edge = split.edge;
    count.one_hop = split.one_hop_sum();
    count.direct = split.direct;
    count.multi_hop = split.multi_hop;
  }

  // The pair whose edge, times the target's own edge to the logit, is largest.
  void AddStrongestPair() {
    double best = -1.0;
    std::int64_t source = at_key_[0], target = at_query_[0];
    for (const std::int64_t t : at_query_) {
      const float* row = graph_.Row(*RowOf(graph_, t));
      for (const std::int64_t s : at_key_) {
        const double product = std::abs(static_cast<double>(row[s]) * to_logit_[t]);
        if (product <= best) continue;
        best = product;
        source = s;
        target = t;
      }
    }
    AddEdge("strongest pair of features", NameOf(graph_.features[source]),
            NameOf(graph_.features[target]), {source},
            ReadBy(prompt_, graph_.features, {&target, 1}));
  }

  // The feature at the query that passes most on of what it has from the key.
  void AddPositionToFeature() {
    const std::vector<std::int64_t> sources = SourcesAt(graph_, key_);
    const std::int64_t target = Largest(at_query_, [&](std::int64_t t) {
      const float* row = graph_.Row(*RowOf(graph_, t));
      double sum = 0.0;
      for (const std::int64_t s : sources) sum += row[s];
      return sum * to_logit_[t];
    });
    AddEdge("position to strongest feature", fmt::format("all at {}", key_),
            NameOf(graph_.features[target]), sources,
            ReadBy(prompt_, graph_.features, {&target, 1}));
  }

  // All edges of features at the key to features at the query.
  void AddAllPairs() {
    std::vector<StreamVectors> sources, targets;
    for (const std::int64_t s : at_key_) {
      sources.push_back(WrittenBy(prompt_, graph_.features, graph_.nodes, {&s, 1}));
    }
    for (const std::int64_t t : at_query_) {
      targets.push_back(ReadBy(prompt_, graph_.features, {&t, 1}));
    }
    const Buffer<float> all = OneHopOfAll(prompt_, sources, targets, query_, key_);
    const auto S = static_cast<std::int64_t>(sources.size());
    const auto N = static_cast<std::int64_t>(targets.size());
    const std::int64_t heads = all.size() / (N * S);
    // The strongest edges, one by one.
    std::vector<std::pair<double, std::int64_t>> edges;
    for (std::int64_t n = 0; n < N; ++n) {
      const float* row = graph_.Row(*RowOf(graph_, at_query_[n]));
      for (std::int64_t s = 0; s < S; ++s) {
        edges.push_back({-std::abs(static_cast<double>(row[at_key_[s]])), n * S + s});
      }
    }
    std::sort(edges.begin(), edges.end());
    edges.resize(std::min<std::size_t>(edges.size(), 100));
    std::vector<double> needed, values(static_cast<std::size_t>(heads)),
        sums(static_cast<std::size_t>(heads), 0.0), strongest(sums);
    for (const auto& [magnitude, pair] : edges) {
      for (std::int64_t h = 0; h < heads; ++h) {
        values[h] = all[h * N * S + pair];
        strongest[h] += std::abs(values[h]);
      }
      needed.push_back(static_cast<double>(CountForShare(values, share_)));
    }
    CarrierCount& median = Add("100 strongest feature edges, median", strongest);
    median.heads = Median(needed);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t n = 0; n < N; ++n) {
        double sum = 0.0;
        for (std::int64_t s = 0; s < S; ++s) sum += std::abs(all[(h * N + n) * S + s]);
        sums[h] += sum * scores_.influence[at_query_[n]];
      }
    }
    Add("all feature edges, by influence", sums);
  }

  void AddWeights() {
    const std::int64_t T = prompt_.length(), H = prompt_.config().heads;
    std::vector<double> weights;
    for (const FrozenLayer& layer : prompt_.layers) {
      for (std::int64_t h = 0; h < H; ++h) {
        weights.push_back(layer.weights[(h * T + query_) * T + key_]);
      }
    }
    Add("attention weight", std::move(weights));
  }

  const FrozenPrompt& prompt_;
  const AttributionGraph& graph_;
  const GraphScores& scores_;
  const LogitTarget& logit_;
  const float* to_logit_;
  std::int64_t query_, key_;
  double share_;
  std::vector<std::int64_t> at_key_, at_query_;  // features; those at the query have rows
  std::vector<CarrierCount> counts_;
};

MeasuredTarget MeasuredBy(const AttributionGraph& graph, const CarrierEdge& edge) {
  MeasuredTarget target{.logit = edge.logit, .features = {}};
  for (const std::int64_t f : edge.targets) target.features.push_back(graph.features[f]);
  return target;
}

}  // namespace

std::string_view NameOf(KnockOutMode mode) {
  switch (mode) {
    case KnockOutMode::kFrozen:
      return "frozen";
    case KnockOutMode::kAttention:
      return "attention frozen";
    case KnockOutMode::kFree:
      break;
  }
  return "free";
}

std::vector<std::int64_t> SourcesAt(const AttributionGraph& graph, std::int64_t position) {
  std::vector<std::int64_t> sources = FeaturesAt(graph, position);
  for (std::int64_t l = 0; l < graph.nodes.layers; ++l) {
    sources.push_back(graph.nodes.Error(l, position));
  }
  sources.push_back(graph.nodes.Token(position));
  if (graph.nodes.positions) sources.push_back(graph.nodes.Position(position));
  return sources;
}

std::vector<CarrierCount> CountCarriers(const FrozenPrompt& prompt, const AttributionGraph& graph,
                                        const GraphScores& scores, std::int64_t logit,
                                        std::int64_t query, std::int64_t key, double share) {
  return Counter(prompt, graph, scores, logit, query, key, share).All();
}

Carriers FindCarriers(const FrozenPrompt& prompt, const AttributionGraph& graph,
                      const GraphScores& scores, const CarrierEdge& edge,
                      const CarrierOptions& options) {
  Check(edge.targets.empty() == edge.logit.has_value(), "features or a logit");
  const std::int64_t H = prompt.config().heads, T = prompt.length();
  Carriers result;
  result.edge = edge;
  const StreamVectors target =
      edge.logit ? ReadBy(prompt, *edge.logit) : ReadBy(prompt, graph.features, edge.targets);
  result.split = SplitEdge(prompt, WrittenBy(prompt, graph.features, graph.nodes, edge.sources),
                           target, edge.query, edge.key);
  const std::vector<double>& values = result.split.one_hop;
  result.n80_one_hop = CountForShare(values, options.share);
  result.n80_heads = CountForShare(result.split.heads, options.share);
  result.contributing = CountNonzero(values);
  double total = 0.0, sum = 0.0;
  for (const double value : values) total += std::abs(value);
  const std::vector<double> through = CellEffects(prompt, target, edge.query, edge.key);
  std::vector<std::int64_t> chosen = RankByMagnitude(values);
  chosen.resize(static_cast<std::size_t>(result.n80_one_hop));
  for (const std::int64_t i : chosen) {
    const std::int64_t layer = i / H, head = i % H;
    CarrierHead& carrier = result.heads.emplace_back();
    carrier.layer = layer;
    carrier.head = head;
    carrier.value = values[i];
    carrier.share = std::abs(values[i]) / total;
    carrier.weight = prompt.layers[layer].weights[(head * T + edge.query) * T + edge.key];
    carrier.through = through[i];
    carrier.reasons = ExplainScore(prompt, layer, head, edge.query, edge.key);
    if (prompt.config().attention == AttentionKind::kGated) {
      carrier.gate = MarginOfGate(carrier.reasons, GateBiasOf(*prompt.model, layer).Of(head));
    }
    sum += values[i];
  }
  const double one_hop = result.split.one_hop_sum();
  result.stated_share = one_hop != 0.0 ? sum / one_hop : 0.0;
  std::int64_t logit = 0;
  for (std::size_t i = 0; i < graph.logits.size(); ++i) {
    if (edge.logit && graph.logits[i].token == edge.logit->token) {
      logit = static_cast<std::int64_t>(i);
    }
  }
  result.counts = CountCarriers(prompt, graph, scores, logit, edge.query, edge.key, options.share);
  if (options.random_sets > 0 && edge.query != edge.key) {
    const MeasuredTarget measured = MeasuredBy(graph, edge);
    for (const KnockOutMode mode :
         {KnockOutMode::kFrozen, KnockOutMode::kAttention, KnockOutMode::kFree}) {
      result.checks.push_back({mode, CheckByKnockOut(prompt, measured, chosen, edge.query, edge.key,
                                                     mode, options.random_sets, options.seed)});
    }
  }
  return result;
}

}  // namespace clearhead
