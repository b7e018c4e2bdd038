// SPDX-License-Identifier: MIT
// The learning rate over a run: linear warm-up, then a cosine down to a fraction of the peak.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace clearhead {

struct Schedule {
  double peak = 1e-3;
  std::int64_t warmup = 100;    // steps
  std::int64_t total = 1000;    // steps
  double final_fraction = 0.1;  // of the peak, reached at the last step
};

// The rate of step `step`, counted from 0.
inline double LearningRate(const Schedule& s, std::int64_t step) {
  if (step < s.warmup)
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double span = static_cast<double>(std::max<std::int64_t>(s.total - 1 - s.warmup, 1));
  const double progress = std::min(1.0, static_cast<double>(step - s.warmup) / span);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return s.peak * (s.final_fraction + (1.0 - s.final_fraction) * cosine);
}

// Linear warm-up over 5 % of the steps, then constant, then linearly to 0 over the last 30 %.
inline double WarmHoldDecay(double peak, std::int64_t total, std::int64_t step) {
  const double at = (static_cast<double>(step) + 0.5) / static_cast<double>(total);
  return peak * std::min({at / 0.05, 1.0, (1.0 - at) / 0.3});
}

}  // namespace clearhead
