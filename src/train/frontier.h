// SPDX-License-Identifier: MIT
// What runs of sparsify reached, from the files that they left: loss against edges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/sparse_quality.h"

namespace clearhead {

// The gates on the untrained weights and the dense loss, as a run of sparsify leaves them beside
// metrics.jsonl.
struct RunStart {
  double dense_loss = 0.0;       // validation
  std::int64_t context = 0;      // tokens of a window
  double tokens_per_step = 0.0;  // of training
  std::vector<SweepPoint> untrained;
};
void WriteRunStart(const RunStart& start, const std::filesystem::path& run);

// A validation with hard gates.
struct FrontierPoint {
  double tokens = 0.0;  // of training until then
  double above = 0.0;   // loss above the dense model's
  double edge_fraction = 0.0, edges_per_query = 0.0;
};

struct FrontierRun {
  std::filesystem::path folder;
  RunStart start;
  std::vector<FrontierPoint> measured;  // in order of time
};
FrontierRun ReadFrontierRun(const std::filesystem::path& run);

std::vector<FrontierPoint> PointsOf(std::span<const SweepPoint> sweep);

// Those that no other beats in both, from the lowest loss on: along them edges fall.
std::vector<FrontierPoint> Frontier(std::vector<FrontierPoint> points);

// The point with the fewest edges among those within the tolerance; null if there is none.
const FrontierPoint* FewestEdges(std::span<const FrontierPoint> points, double tolerance);

}  // namespace clearhead
