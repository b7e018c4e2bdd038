// SPDX-License-Identifier: MIT
// Confidence interval of a mean of paired differences.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace clearhead {

struct Interval {
  double low, high;
};

struct WeightedMean {
  double mean = 0.0;
  std::optional<Interval> interval;  // none for a single value: its spread is unknown
};

// mean = sum_i w_i x_i with w_i = weights_i / sum of weights, and its two-sided 95 % interval
//
//     mean -+ t(n - 1) sqrt(n / (n - 1) sum_i w_i^2 (x_i - mean)^2)
//
// by Student's t. With equal weights this is the textbook paired t interval; with others, that of a
// ratio estimate. It takes the values as independent draws.
WeightedMean MeanWithInterval(std::span<const double> values, std::span<const double> weights);

// The t that |T| exceeds with probability 0.05, for T of Student's distribution.
double StudentQuantile95(std::int64_t degrees_of_freedom);

}  // namespace clearhead
