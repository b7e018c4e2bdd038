// SPDX-License-Identifier: MIT
// Timing for `clearhead bench`.
#pragma once

#include <algorithm>
#include <chrono>

namespace clearhead {

// Seconds of one call: the best of several, after one warm-up, within about `budget` seconds. The
// best, because on a shared machine noise only ever adds.
template <typename F>
double BestSeconds(double budget, const F& f) {
  using Clock = std::chrono::steady_clock;
  const auto timed = [&] {
    const auto start = Clock::now();
    f();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const double warm_up = timed();
  double best = 1e300, spent = warm_up;
  int runs = 0;
  while (runs < 2 || (spent < budget && runs < 1000)) {
    const double seconds = timed();
    best = std::min(best, seconds);
    spent += seconds;
    ++runs;
  }
  return best;
}

// The same of two calls that take turns, for a ratio: what the machine does meanwhile meets both.
struct Turns {
  double first, second;
};
template <typename F, typename G>
Turns BestSecondsInTurns(double budget, const F& first, const G& second) {
  Turns best{1e300, 1e300};
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto timed = [&](const auto& f, double* seconds) {
    const auto begin = Clock::now();
    f();
    *seconds = std::min(*seconds, std::chrono::duration<double>(Clock::now() - begin).count());
  };
  first();
  second();
  for (int runs = 0;
       runs < 2 ||
       (std::chrono::duration<double>(Clock::now() - start).count() < budget && runs < 1000);
       ++runs) {
    timed(first, &best.first);
    timed(second, &best.second);
  }
  return best;
}

}  // namespace clearhead
