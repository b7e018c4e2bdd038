// SPDX-License-Identifier: MIT
// The smooth line through noisy values.
#pragma once

#include <span>
#include <vector>

namespace clearhead {

// m[i] = sum_j d^|i-j| y[j] / sum_j d^|i-j| over the finite y[j], d = 1 - 1 / window: the mean
// drawn over noisy values. It looks both ways, so it does not lag behind a falling loss. NaN where
// nothing finite is near. window >= 1.
std::vector<double> RunningMean(std::span<const double> values, double window);

}  // namespace clearhead
