// SPDX-License-Identifier: MIT
// The weight of the edge penalty under the loss constraint (GECO: Rezende and Viola, arXiv
// 1810.00597).
//
//   minimise P  subject to  CE_sparse <= CE_dense + slack
//   step on (CE + w KL + beta P) / (1 + beta),  beta = 1 / lambda of the usual form
//   v = clamp((CE_sparse - CE_dense - slack) / scale, -1, 1)   both on one batch: its noise cancels
//   m = ema m + (1 - ema) v
//   beta <- clamp(beta exp(-rate m), minimum, maximum)         loss too high: press less
// Pressing less opens gates. Where open gates would not lower the loss, beta is held instead of
// falling: the loss is then a matter of weights that are still on their way.
// The loss answers beta some fifty steps late, and suddenly where a gate that mattered closes; to
// open it again takes hundreds of steps. So beta moves slowly and has a lid (docs/sparsify.md).
#pragma once

#include <algorithm>
#include <cmath>

namespace clearhead {

struct MultiplierOptions {
  double initial = 0.5;
  double minimum = 0.02;
  double maximum = 10.0;
  double rate = 0.02;
  double ema = 0.9;
  double scale = 0.02;  // nats of violation that count as full
};

class Multiplier {
 public:
  explicit Multiplier(const MultiplierOptions& options)
      : options_(options), beta_(options.initial) {}

  // `violation` = CE_sparse - CE_dense - slack, in nats; `hold`: do not fall.
  void Update(double violation, bool hold = false) {
    const double v = std::clamp(violation / options_.scale, -1.0, 1.0);
    average_ = options_.ema * average_ + (1.0 - options_.ema) * v;
    if (hold && average_ > 0.0) return;
    beta_ =
        std::clamp(beta_ * std::exp(-options_.rate * average_), options_.minimum, options_.maximum);
  }

  double beta() const { return beta_; }
  double average() const { return average_; }
  void Restore(double beta, double average) {
    beta_ = beta;
    average_ = average;
  }

 private:
  MultiplierOptions options_;
  double beta_;
  double average_ = 0.0;
};

}  // namespace clearhead
