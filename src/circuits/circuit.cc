// SPDX-License-Identifier: MIT
#include "circuits/circuit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {
namespace {

std::vector<std::int64_t> GridSizes(std::int64_t total, std::int64_t every_size_up_to) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 0; size < total;
       size += total <= every_size_up_to ? 1 : std::max<std::int64_t>(1, size / 4)) {
    sizes.push_back(size);
  }
  sizes.push_back(total);
  return sizes;
}

// Shuffled by hashes, the first `size` of them.
std::vector<std::int64_t> RandomSet(std::int64_t total, std::int64_t size, std::uint64_t seed,
                                    std::uint64_t n) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(total));
  std::iota(elements.begin(), elements.end(), std::int64_t{0});
  const auto key = [&](std::int64_t element) {
    return HashCoordinates(
        seed, {n, static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(element)});
  };
  std::sort(elements.begin(), elements.end(),
            [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  elements.resize(static_cast<std::size_t>(size));
  return elements;
}

// The measured sizes, and measuring more of them.
class Prefixes {
 public:
  Prefixes(const std::vector<std::int64_t>& order, const MeasureSets& measure)
      : order_(order), measure_(measure) {}

  void Measure(const std::set<std::int64_t>& sizes) {
    std::vector<std::vector<std::int64_t>> sets;
    std::vector<std::int64_t> fresh;
    for (const std::int64_t size : sizes) {
      if (metrics_.contains(size)) continue;
      fresh.push_back(size);
      sets.emplace_back(order_.begin(), order_.begin() + size);
    }
    if (fresh.empty()) return;
    const std::vector<double> found = measure_(sets);
    for (std::size_t i = 0; i < fresh.size(); ++i) metrics_[fresh[i]] = found[i];
  }
  const std::map<std::int64_t, double>& metrics() const { return metrics_; }

 private:
  const std::vector<std::int64_t>& order_;
  const MeasureSets& measure_;
  std::map<std::int64_t, double> metrics_;
};

std::vector<CurvePoint> PointsOf(const std::map<std::int64_t, double>& metrics,
                                 const CircuitCurve& curve) {
  std::vector<CurvePoint> points;
  for (const auto& [size, metric] : metrics) {
    points.push_back({size, metric, (metric - curve.empty) / (curve.full - curve.empty)});
  }
  return points;
}

std::size_t FirstReaching(const std::vector<CurvePoint>& points, double target) {
  const auto reached = std::find_if(points.begin(), points.end(), [&](const CurvePoint& point) {
    return point.faithfulness >= target;
  });
  // Rounding may leave the full set of edges a hair below 1, never below a target.
  return static_cast<std::size_t>(std::min(reached, points.end() - 1) - points.begin());
}

RandomPoint Summary(std::int64_t size, const std::vector<double>& faithfulness) {
  const auto count = static_cast<double>(faithfulness.size());
  const double mean = std::accumulate(faithfulness.begin(), faithfulness.end(), 0.0) / count;
  double squares = 0.0;
  for (const double f : faithfulness) squares += (f - mean) * (f - mean);
  return {size, static_cast<std::int64_t>(faithfulness.size()), mean,
          count > 1 ? std::sqrt(squares / (count - 1)) : 0.0};
}

}  // namespace

const CircuitMark& CircuitCurve::At(double target) const {
  const auto mark = std::find_if(marks.begin(), marks.end(),
                                 [&](const CircuitMark& m) { return m.target == target; });
  Check(mark != marks.end(), "no mark for this target");
  return *mark;
}

CircuitCurve TraceCurve(const std::vector<std::int64_t>& order, double full,
                        const MeasureSets& measure, const CurveOptions& options) {
  CircuitCurve curve{.total = static_cast<std::int64_t>(order.size()), .full = full};
  Check(curve.total > 0, "a curve needs elements");
  Prefixes prefixes(order, measure);
  const std::vector<std::int64_t> grid = GridSizes(curve.total, options.every_size_up_to);
  prefixes.Measure({grid.begin(), grid.end()});
  curve.empty = prefixes.metrics().at(0);
  if (!(std::abs(curve.full - curve.empty) > 1e-9 * (1.0 + std::abs(curve.full)))) {
    Fail(
        "with everything ablated the metric stays at {:.4g}, so no part of the model carries the "
        "task; try another ablation",
        curve.full);
  }
  // Between the last size below the target and the first above it there may be unmeasured ones.
  while (true) {
    curve.points = PointsOf(prefixes.metrics(), curve);
    std::set<std::int64_t> middles;
    for (const double target : kFaithfulnessTargets) {
      const std::size_t at = FirstReaching(curve.points, target);
      if (at == 0) continue;
      const std::int64_t low = curve.points[at - 1].size, high = curve.points[at].size;
      if (high - low > 1) middles.insert(low + (high - low) / 2);
    }
    if (middles.empty()) break;
    prefixes.Measure(middles);
  }

  std::set<std::int64_t> sizes;
  for (const double target : kFaithfulnessTargets) {
    const CurvePoint& point = curve.points[FirstReaching(curve.points, target)];
    curve.marks.push_back({target, point.size, point.faithfulness, {}});
    sizes.insert(point.size);
  }
  for (std::int64_t eighth = 1; eighth < 8; ++eighth) sizes.insert(curve.total * eighth / 8);
  std::vector<std::vector<std::int64_t>> sets;
  for (const std::int64_t size : sizes) {
    for (std::int64_t n = 0; n < options.random_sets; ++n) {
      sets.push_back(RandomSet(curve.total, size, options.seed, static_cast<std::uint64_t>(n)));
    }
  }
  if (options.random_sets > 0) {
    const std::vector<double> metrics = measure(sets);
    std::size_t next = 0;
    for (const std::int64_t size : sizes) {
      std::vector<double> faithfulness;
      for (std::int64_t n = 0; n < options.random_sets; ++n) {
        faithfulness.push_back((metrics[next++] - curve.empty) / (curve.full - curve.empty));
      }
      curve.random.push_back(Summary(size, faithfulness));
    }
    for (CircuitMark& mark : curve.marks) {
      mark.random = *std::find_if(curve.random.begin(), curve.random.end(),
                                  [&](const RandomPoint& r) { return r.size == mark.size; });
    }
  }
  for (std::size_t i = 1; i < curve.points.size(); ++i) {
    const CurvePoint &a = curve.points[i - 1], &b = curve.points[i];
    curve.area += 0.5 * (a.faithfulness + b.faithfulness) * static_cast<double>(b.size - a.size) /
                  static_cast<double>(curve.total);
  }
  return curve;
}

std::vector<std::int64_t> RankByImportance(const std::vector<double>& importance) {
  std::vector<std::int64_t> order(importance.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(importance[static_cast<std::size_t>(a)]) >
           std::abs(importance[static_cast<std::size_t>(b)]);
  });
  return order;
}

NodeSet OtherHeads(const ResidualGraph& graph, std::span<const std::int64_t> heads) {
  NodeSet others(static_cast<std::size_t>(graph.node_count()), false);
  for (const std::int64_t head : graph.AllHeads()) others[static_cast<std::size_t>(head)] = true;
  for (const std::int64_t head : heads) others[static_cast<std::size_t>(head)] = false;
  return others;
}

CircuitCurve TraceHeads(const TaskRuns& runs, const std::vector<std::int64_t>& heads, double full,
                        const PatchOptions& patch, const CurveOptions& options) {
  const ResidualGraph graph(runs.config());
  const MeasureSets measure = [&](const std::vector<std::vector<std::int64_t>>& sets) {
    std::vector<NodeSet> replaced;
    for (const std::vector<std::int64_t>& elements : sets) {
      std::vector<std::int64_t> nodes;
      for (const std::int64_t element : elements) {
        nodes.push_back(heads[static_cast<std::size_t>(element)]);
      }
      replaced.push_back(OtherHeads(graph, nodes));
    }
    PatchOptions noise = patch;
    noise.direction = Direction::kNoise;
    return MetricsWithReplaced(runs, replaced, noise);
  };
  std::vector<std::int64_t> order(heads.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return TraceCurve(order, full, measure, options);
}

void CheckModelDoesTask(const TaskSet& set, const ItemScores& scores) {
  const auto count = static_cast<double>(set.items.size());
  double mean_clean = 0.0, mean = 0.0, squares = 0.0;
  std::vector<double> drops;
  for (std::size_t i = 0; i < set.items.size(); ++i) {
    drops.push_back(scores.clean[i] - scores.corrupted[i]);
    mean_clean += scores.clean[i] / count;
    mean += drops.back() / count;
  }
  for (const double drop : drops) squares += (drop - mean) * (drop - mean);
  const double error = count > 1 ? std::sqrt(squares / (count - 1) / count) : 0.0;
  if (!(mean_clean > 0.0 && mean > 3.0 * error && mean > 0.0)) {
    Fail(
        "the model cannot do task '{}': its mean metric is {:.3g} on the clean prompts (above 0 "
        "would prefer the answers) and {:.3g} on the corrupted ones (over {} prompts, standard "
        "error of the difference {:.2g}); there is no circuit to find",
        set.name, mean_clean, mean_clean - mean, set.items.size(), error);
  }
}

}  // namespace clearhead
