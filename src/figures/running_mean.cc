// SPDX-License-Identifier: MIT
#include "figures/running_mean.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "core/error.h"

namespace clearhead {

std::vector<double> RunningMean(std::span<const double> values, double window) {
  Check(window >= 1, "a window holds at least one value");
  const double decay = 1 - 1 / window;
  const std::size_t count = values.size();
  std::vector<double> sums(count), weights(count);
  double sum = 0, weight = 0;
  const auto pass_on = [&] {
    sum *= decay;
    weight *= decay;
  };
  const auto take = [&](double value) {
    if (!std::isfinite(value)) return;
    sum += value;
    weight += 1;
  };
  for (std::size_t i = 0; i < count; ++i) {  // the value itself and those before it
    pass_on();
    take(values[i]);
    sums[i] = sum;
    weights[i] = weight;
  }
  sum = weight = 0;
  std::vector<double> means(count);
  for (std::size_t i = count; i-- > 0;) {  // those after it
    pass_on();
    const double all = weights[i] + weight;
    means[i] = all > 0 ? (sums[i] + sum) / all : std::numeric_limits<double>::quiet_NaN();
    take(values[i]);
  }
  return means;
}

}  // namespace clearhead
