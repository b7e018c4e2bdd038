// SPDX-License-Identifier: MIT
// How good a gated model is, and what other gate biases would make of the same weights.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "core/json.h"
#include "model/model.h"

namespace clearhead {

// A model on validation text with hard gates.
struct SparseQuality {
  double loss = 0.0;
  double edge_fraction = 0.0;    // open gates / causal pairs at the run's context
  double edges_per_query = 0.0;  // mean open keys per query and head
};
Json QualityJson(const SparseQuality& quality);
Json QualityJson(const std::optional<SparseQuality>& quality);
std::optional<SparseQuality> QualityOf(const Json& json);  // its way back

struct QualityWindows {
  std::span<const std::int32_t> tokens;
  std::int64_t context = 0;
  std::int64_t max_tokens = 0;    // predictions at most; 0: all
  Communicator* ranks = nullptr;  // that share out the windows
};
// `bias_shift` is added to every gate's bias.
SparseQuality MeasureQuality(const Model& model, const QualityWindows& windows,
                             double bias_shift = 0.0);

struct SweepPoint {
  double bias = 0.0;   // the config's, with the shift
  double above = 0.0;  // loss above the dense model's on the same windows
  SparseQuality quality;
};
Json SweepJson(std::span<const SweepPoint> points);

// The same weights at config.gate_bias + shift, one point for each shift.
std::vector<SweepPoint> SweepBias(const Model& gated, double dense_loss,
                                  const QualityWindows& windows, std::span<const double> shifts);

// Gates on the dense weights as they are, from nearly all open to few: what costs no training, and
// so the first line to beat. On the first windows only.
std::vector<SweepPoint> SweepUntrained(const Model& dense, const Model& gated,
                                       QualityWindows windows);

// The point with the fewest edges among those within the tolerance; null if there is none.
const SweepPoint* FewestEdges(std::span<const SweepPoint> points, double tolerance);

}  // namespace clearhead
