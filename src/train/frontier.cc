// SPDX-License-Identifier: MIT
#include "train/frontier.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/file.h"
#include "train/metrics_log.h"

namespace clearhead {
namespace {

constexpr const char* kStartFile = "start.json";

RunStart ReadRunStart(const std::filesystem::path& run) {
  const std::filesystem::path file = run / kStartFile;
  const Json json = ReadJsonFile(file);
  try {
    RunStart start{.dense_loss = json.at("dense_loss").get<double>(),
                   .context = json.at("context").get<std::int64_t>(),
                   .tokens_per_step = json.at("tokens_per_step").get<double>()};
    for (const Json& each : json.at("untrained")) {
      start.untrained.push_back({.bias = each.at("gate_bias").get<double>(),
                                 .above = each.at("loss_above_dense").get<double>(),
                                 .quality = QualityOf(each).value()});
    }
    return start;
  } catch (const Json::exception&) {
    Fail(
        "{}: not what a run of sparsify leaves there; expected dense_loss, context, "
        "tokens_per_step and untrained",
        file.string());
  }
}

}  // namespace

void WriteRunStart(const RunStart& start, const std::filesystem::path& run) {
  WriteJsonFile(run / kStartFile, {{"dense_loss", start.dense_loss},
                                   {"context", start.context},
                                   {"tokens_per_step", start.tokens_per_step},
                                   {"untrained", SweepJson(start.untrained)}});
}

FrontierRun ReadFrontierRun(const std::filesystem::path& run) {
  const std::filesystem::path metrics = run / "metrics.jsonl";
  if (!std::filesystem::exists(run / kStartFile) || !std::filesystem::exists(metrics)) {
    Fail("'{}' is not the folder of a run of sparsify: expected {} and metrics.jsonl in it",
         run.string(), kStartFile);
  }
  FrontierRun result{.folder = run, .start = ReadRunStart(run)};
  try {
    for (const Json& line : ReadMetrics(metrics)) {
      if (!line.contains("valid")) continue;
      const SparseQuality quality = QualityOf(line["valid"]).value();
      result.measured.push_back(
          {.tokens = (line.at("step").get<double>() + 1.0) * result.start.tokens_per_step,
           .above = quality.loss - result.start.dense_loss,
           .edge_fraction = quality.edge_fraction,
           .edges_per_query = quality.edges_per_query});
    }
  } catch (const Json::exception&) {
    Fail("{}: not the metrics of sparsify; expected lines with step and valid", metrics.string());
  }
  return result;
}

std::vector<FrontierPoint> PointsOf(std::span<const SweepPoint> sweep) {
  std::vector<FrontierPoint> points;
  for (const SweepPoint& each : sweep) {
    points.push_back({.above = each.above,
                      .edge_fraction = each.quality.edge_fraction,
                      .edges_per_query = each.quality.edges_per_query});
  }
  return points;
}

std::vector<FrontierPoint> Frontier(std::vector<FrontierPoint> points) {
  std::stable_sort(
      points.begin(), points.end(), [](const FrontierPoint& a, const FrontierPoint& b) {
        return a.above != b.above ? a.above < b.above : a.edge_fraction < b.edge_fraction;
      });
  std::vector<FrontierPoint> best;
  double fewest = std::numeric_limits<double>::infinity();
  for (const FrontierPoint& point : points) {
    if (point.edge_fraction >= fewest) continue;
    fewest = point.edge_fraction;
    best.push_back(point);
  }
  return best;
}

const FrontierPoint* FewestEdges(std::span<const FrontierPoint> points, double tolerance) {
  const FrontierPoint* best = nullptr;
  for (const FrontierPoint& point : points) {
    if (point.above > tolerance) continue;
    if (best == nullptr || point.edge_fraction < best->edge_fraction) best = &point;
  }
  return best;
}

}  // namespace clearhead
