// SPDX-License-Identifier: MIT
// What changed from one model to another (dense to sparse, say), as a whole and head by head.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heads/head_report.h"

namespace clearhead {

struct ValueChange {
  double before = 0, after = 0;
  // Of the difference. For a model: over heads. For a head: over (blocks of) sequences; none with
  // fewer than two, or if the models saw different sequences.
  std::optional<double> p;
};

struct HeadChange {
  HeadId head;
  HeadKind before = HeadKind::kOther, after = HeadKind::kOther;
  ValueChange self, first, mean_peak, open_edges_per_query;
};

struct ModelComparison {
  std::string before, after;  // labels
  bool paired = false;        // models of one shape: p-values compare each head with itself
  // In per cent of `before`; none where that is 0.
  std::optional<double> connections_removed, diagonal_intensity_lost;
  // Over the common heads: first-token mass above one half before / after / before but not after.
  std::int64_t sinks_before = 0, sinks_after = 0, sinks_eliminated = 0;
  ValueChange diagonal_dominant, diagonal_intensity, peak_intensity, sink_mass,
      open_edges_per_query;
  std::vector<HeadChange> heads;  // heads that both have
};

ModelComparison CompareModels(const ModelReport& before, const ModelReport& after,
                              std::uint64_t seed);

}  // namespace clearhead
