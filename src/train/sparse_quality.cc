// SPDX-License-Identifier: MIT
#include "train/sparse_quality.h"

#include <algorithm>

#include "use/evaluate.h"

namespace clearhead {

Json QualityJson(const SparseQuality& q) {
  return {
      {"loss", q.loss}, {"edge_fraction", q.edge_fraction}, {"edges_per_query", q.edges_per_query}};
}

Json QualityJson(const std::optional<SparseQuality>& quality) {
  return quality ? QualityJson(*quality) : Json();
}

std::optional<SparseQuality> QualityOf(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return SparseQuality{json.at("loss").get<double>(), json.at("edge_fraction").get<double>(),
                       json.at("edges_per_query").get<double>()};
}

SparseQuality MeasureQuality(const Model& model, const QualityWindows& windows, double bias_shift) {
  const Evaluation e =
      Evaluate(model, windows.tokens,
               {.context = windows.context,
                .max_tokens = windows.max_tokens,
                .gates = {.sum_probabilities = false, .bias_shift = static_cast<float>(bias_shift)},
                .ranks = windows.ranks});
  double open = 0.0;
  for (const std::int64_t edges : e.open_edges) open += static_cast<double>(edges);
  const double heads = static_cast<double>(std::max<std::size_t>(e.open_edges.size(), 1));
  return {e.loss, open / (heads * static_cast<double>(e.causal_edges)),
          open / (heads * static_cast<double>(e.tokens))};
}

Json SweepJson(std::span<const SweepPoint> points) {
  Json json = Json::array();
  for (const SweepPoint& point : points) {
    Json each = QualityJson(point.quality);
    each["gate_bias"] = point.bias;
    each["loss_above_dense"] = point.above;
    json.push_back(std::move(each));
  }
  return json;
}

std::vector<SweepPoint> SweepBias(const Model& gated, double dense_loss,
                                  const QualityWindows& windows, std::span<const double> shifts) {
  std::vector<SweepPoint> points;
  for (const double shift : shifts) {
    const SparseQuality quality = MeasureQuality(gated, windows, shift);
    points.push_back({.bias = gated.config.gate_bias + shift,
                      .above = quality.loss - dense_loss,
                      .quality = quality});
  }
  return points;
}

std::vector<SweepPoint> SweepUntrained(const Model& dense, const Model& gated,
                                       QualityWindows windows) {
  constexpr std::int64_t kWindows = 16;
  const std::int64_t most = kWindows * windows.context;
  windows.max_tokens = windows.max_tokens == 0 ? most : std::min(windows.max_tokens, most);
  std::vector<double> shifts;
  for (const double bias : {4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0}) {
    shifts.push_back(bias - gated.config.gate_bias);
  }
  return SweepBias(gated, MeasureQuality(dense, windows).loss, windows, shifts);
}

const SweepPoint* FewestEdges(std::span<const SweepPoint> points, double tolerance) {
  const SweepPoint* best = nullptr;
  for (const SweepPoint& point : points) {
    if (point.above > tolerance) continue;
    if (best == nullptr || point.quality.edge_fraction < best->quality.edge_fraction) best = &point;
  }
  return best;
}

}  // namespace clearhead
