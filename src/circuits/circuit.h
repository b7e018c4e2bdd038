// SPDX-License-Identifier: MIT
// Circuits: how many of the most important elements (heads, or edges) a behaviour needs.
//
// Elements are added one by one in a given order, all others ablated; the metric m of the task is
// measured for each such set C. Faithfulness
//
//     f(C) = (m(C) - m(empty)) / (m(full) - m(empty)),     means over items first, then the ratio
//
// is 0 for the empty set and 1 for all elements. Random sets of equal size are the baseline.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "circuits/patching.h"
#include "circuits/task_score.h"

namespace clearhead {

inline constexpr std::array kFaithfulnessTargets = {0.80, 0.90, 0.95, 0.99};

struct CurvePoint {
  std::int64_t size = 0;
  double metric = 0.0;
  double faithfulness = 0.0;
};

// Random sets of one size: mean and standard deviation over the sets.
struct RandomPoint {
  std::int64_t size = 0;
  std::int64_t sets = 0;
  double faithfulness = 0.0;
  double deviation = 0.0;
};

// The smallest set of the order that reaches a target.
struct CircuitMark {
  double target = 0.0;
  std::int64_t size = 0;
  double faithfulness = 0.0;
  RandomPoint random;
};

struct CircuitCurve {
  std::int64_t total = 0;           // elements there are
  double full = 0.0, empty = 0.0;   // m of the untouched model, and with everything ablated
  std::vector<CurvePoint> points;   // by size, 0 and total among them
  std::vector<CircuitMark> marks;   // one per target
  std::vector<RandomPoint> random;  // by size
  double area = 0.0;                // under f over size / total, trapezoids

  const CircuitMark& At(double target) const;
};

struct CurveOptions {
  // With at most this many elements every size is measured. With more, sizes grow by a quarter each
  // and the marks are then found by bisection.
  std::int64_t every_size_up_to = 64;
  std::int64_t random_sets = 5;
  std::uint64_t seed = 0;
};

// Mean metrics of sets of elements 0 .. total - 1.
using MeasureSets =
    std::function<std::vector<double>(const std::vector<std::vector<std::int64_t>>& sets)>;

// `order`: all elements, most important first. `full`: m of the untouched model.
CircuitCurve TraceCurve(const std::vector<std::int64_t>& order, double full,
                        const MeasureSets& measure, const CurveOptions& options);

// Elements by falling |importance|; equal ones by number.
std::vector<std::int64_t> RankByImportance(const std::vector<double>& importance);

// The curve of heads on clean prompts: heads outside the circuit are ablated, MLPs run on what they
// then get. `heads` are nodes of the residual graph, most important first.
CircuitCurve TraceHeads(const TaskRuns& runs, const std::vector<std::int64_t>& heads, double full,
                        const PatchOptions& patch, const CurveOptions& options);

// All heads but these.
NodeSet OtherHeads(const ResidualGraph& graph, std::span<const std::int64_t> heads);

// Throws Error if there is nothing to trace: the model does not prefer the answers, or corrupting
// the prompts changes nothing beyond what chance gives (3 standard errors).
void CheckModelDoesTask(const TaskSet& set, const ItemScores& scores);

}  // namespace clearhead
