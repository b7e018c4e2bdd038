// Timing for `clearhead bench`.
#pragma once

#include <algorithm>
#include <chrono>

namespace clearhead::cli {

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

}  // namespace clearhead::cli
