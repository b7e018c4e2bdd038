// SPDX-License-Identifier: MIT
// Timing for `clearhead bench`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace clearhead {

// How long to go on with one measurement: about `seconds`, and `least_runs` in any case.
struct Budget {
  double seconds = 1.0;
  int least_runs = 2;
};

template <typename F>
double SecondsOf(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds of one call: the best of several, after one warm-up. The best, because on a shared
// machine noise only ever adds.
template <typename F>
double BestSeconds(const Budget& budget, const F& f) {
  double best = 1e300, spent = SecondsOf(f);
  for (int runs = 0; runs < budget.least_runs || (spent < budget.seconds && runs < 1000); ++runs) {
    const double seconds = SecondsOf(f);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

// The same of two calls that take turns, for a ratio: what the machine does meanwhile meets both.
struct Turns {
  double first, second;
};
template <typename F, typename G>
Turns BestSecondsInTurns(const Budget& budget, const F& first, const G& second) {
  Turns best{1e300, 1e300};
  double spent = SecondsOf(first) + SecondsOf(second);
  for (int runs = 0; runs < budget.least_runs || (spent < budget.seconds && runs < 1000); ++runs) {
    const Turns now{SecondsOf(first), SecondsOf(second)};
    best = {std::min(best.first, now.first), std::min(best.second, now.second)};
    spent += now.first + now.second;
  }
  return best;
}

// Seconds of each of `count` calls, after one warm-up: for statistics over several programs.
template <typename F>
std::vector<double> EachSeconds(int count, const F& f) {
  f();
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) seconds.push_back(SecondsOf(f));
  return seconds;
}

}  // namespace clearhead
