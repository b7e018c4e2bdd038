// SPDX-License-Identifier: MIT
#include "core/confidence.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace clearhead {
namespace {

// P(|T| < t) with n degrees of freedom. For whole n it is a finite sum in a = atan(t / sqrt(n)):
//   even  sin a (1 + 1/2 cos^2 a + 1 3/(2 4) cos^4 a + ... to cos^(n-2))
//   odd   2/pi (a + sin a (cos a + 2/3 cos^3 a + 2 4/(3 5) cos^5 a + ... to cos^(n-2)))
double StudentInside(double t, std::int64_t n) {
  const double a = std::atan(t / std::sqrt(static_cast<double>(n)));
  const double square = std::cos(a) * std::cos(a);
  const bool odd = n % 2 == 1;
  double term = odd ? std::cos(a) : 1.0, sum = 0.0;
  for (std::int64_t power = odd ? 1 : 0; power <= n - 2; power += 2) {
    sum += term;
    term *= square * static_cast<double>(power + 1) / static_cast<double>(power + 2);
  }
  return odd ? (a + std::sin(a) * sum) * 2.0 / std::numbers::pi : std::sin(a) * sum;
}

}  // namespace

double StudentQuantile95(std::int64_t degrees_of_freedom) {
  Check(degrees_of_freedom >= 1, "Student's distribution needs a degree of freedom");
  // The quantile of 10000 is 1.0001 times that of any more: not worth a longer sum.
  const std::int64_t n = std::min<std::int64_t>(degrees_of_freedom, 10000);
  double low = 1.9, high = 13.0;  // t(infinity) = 1.960, t(1) = 12.706
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (StudentInside(middle, n) < 0.95 ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

WeightedMean MeanWithInterval(std::span<const double> values, std::span<const double> weights) {
  Check(!values.empty() && values.size() == weights.size(), "a mean needs values and weights");
  double total = 0.0;
  for (const double weight : weights) total += weight;
  WeightedMean result;
  for (std::size_t i = 0; i < values.size(); ++i) result.mean += weights[i] / total * values[i];
  if (values.size() < 2) return result;
  double squares = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double part = weights[i] / total * (values[i] - result.mean);
    squares += part * part;
  }
  const double n = static_cast<double>(values.size());
  const double half = StudentQuantile95(static_cast<std::int64_t>(values.size()) - 1) *
                      std::sqrt(n / (n - 1.0) * squares);
  result.interval = Interval{result.mean - half, result.mean + half};
  return result;
}

}  // namespace clearhead
