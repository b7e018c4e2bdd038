// SPDX-License-Identifier: MIT
// How fast may what makes neither queries nor keys learn? Too fast a rate wrecks a well-trained
// model before a gate has closed. A few steps from the same weights on the same batches with next
// to no penalty tell: a rate is too high where the divergence from the dense model ends above that
// of the weights as they were, and above that of training queries and keys alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/sparsify_step.h"

namespace clearhead {

struct ProbePoint {
  double rest_lr = 0.0;
  double divergence = 0.0;  // KL(dense || sparse), mean of the last third of the steps
};

struct RateProbe {
  double start = 0.0;             // divergence of the weights as they were, on the same batches
  std::vector<ProbePoint> tried;  // first queries and keys alone, then from fast to slow
  double chosen = 0.0;            // 0: every rate did harm; the rest is better left alone
};
Json ProbeJson(const RateProbe& probe);
RateProbe ProbeOf(const Json& json, const std::string& source);  // its way back

struct ProbeOptions {
  std::int64_t steps = 24;
  double lr = 1e-3;        // of queries and keys; the rates tried are lr, lr / 3, ... lr / 100
  double beta = 0.02;      // penalty
  double tolerance = 0.1;  // how much more divergence is no harm, as a share
};

// `start` is the gated student. Nothing when stopped by should_stop, which is asked after every
// step and may be null.
std::optional<RateProbe> ProbeRestRate(const Model& start, const Model& dense,
                                       const OptimizerOptions& optimizer,
                                       const TrainingRanks& together, Batches& batches,
                                       SparsifyStep& step, const ProbeOptions& options,
                                       const std::function<bool()>& should_stop);

}  // namespace clearhead
