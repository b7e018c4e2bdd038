// SPDX-License-Identifier: MIT
#include "train/rate_probe.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace clearhead {
namespace {

constexpr double kShares[] = {1.0, 1.0 / 3.0, 0.1, 1.0 / 30.0, 0.01};

struct Trial {
  const Model& start;
  const Model& dense;
  const OptimizerOptions& optimizer;
  const TrainingRanks& together;
  Batches& batches;
  SparsifyStep& step;
  const ProbeOptions& options;
  const std::function<bool()>& should_stop;

  // The divergence that training at `lr`, with the rest at `share` of it, ends with; nothing when
  // stopped.
  std::optional<double> Divergence(double lr, double share) const {
    OptimizerOptions settings = optimizer;
    settings.rest_rate = static_cast<float>(share);
    Optimizer student(start, settings, together);
    const std::int64_t third = std::max<std::int64_t>(1, options.steps / 3);
    double sum = 0.0;
    const std::int64_t counted = options.steps - third;
    for (std::int64_t i = lr > 0.0 ? 0 : counted; i < options.steps; ++i) {
      const SparsifyStepResult r = step.Gradients(student, dense, batches, i, options.beta);
      if (should_stop && should_stop()) return std::nullopt;
      if (!std::isfinite(r.divergence) || !std::isfinite(r.gradient_norm)) return HUGE_VAL;
      if (i >= counted) sum += r.divergence;
      const double ramp = std::min(1.0, static_cast<double>(i + 1) / static_cast<double>(third));
      student.Step(lr * ramp, r.gradient_norm);
    }
    return sum / static_cast<double>(third);
  }
};

}  // namespace

Json ProbeJson(const RateProbe& probe) {
  Json tried = Json::array();
  for (const ProbePoint& point : probe.tried) {
    tried.push_back({{"rest_lr", point.rest_lr}, {"divergence", point.divergence}});
  }
  return {{"rest_lr", probe.chosen}, {"start", probe.start}, {"tried", std::move(tried)}};
}

RateProbe ProbeOf(const Json& json, const std::string& source) {
  try {
    RateProbe probe{.start = json.at("start").get<double>(),
                    .tried = {},
                    .chosen = json.at("rest_lr").get<double>()};
    for (const Json& point : json.at("tried")) {
      probe.tried.push_back(
          {point.at("rest_lr").get<double>(), point.at("divergence").get<double>()});
    }
    return probe;
  } catch (const Json::exception&) {
    Fail("{}: not the rates that sparsify --probe-rates has tried", source);
  }
}

std::optional<RateProbe> ProbeRestRate(const Model& start, const Model& dense,
                                       const OptimizerOptions& optimizer,
                                       const TrainingRanks& together, Batches& batches,
                                       SparsifyStep& step, const ProbeOptions& options,
                                       const std::function<bool()>& should_stop) {
  const Trial trial{start, dense, optimizer, together, batches, step, options, should_stop};
  const std::optional<double> untouched = trial.Divergence(0.0, 0.0);
  const std::optional<double> alone = untouched ? trial.Divergence(options.lr, 0.0) : untouched;
  if (!alone) return std::nullopt;
  const double most = (1.0 + options.tolerance) * std::max(*untouched, *alone);
  RateProbe probe{.start = *untouched, .tried = {{0.0, *alone}}};
  for (const double share : kShares) {
    const std::optional<double> divergence = trial.Divergence(options.lr, share);
    if (!divergence) return std::nullopt;
    probe.tried.push_back({options.lr * share, *divergence});
    if (*divergence > most) continue;
    probe.chosen = options.lr * share;
    break;
  }
  return probe;
}

}  // namespace clearhead
