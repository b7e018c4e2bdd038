// The weight of the edge penalty under the loss constraint (GECO: Rezende and Viola, arXiv
// 1810.00597).
//
//   minimise P  subject to  CE_sparse <= CE_dense + slack
//   step on (CE + w KL + beta P) / (1 + beta),  beta = 1 / lambda of the usual form
//   v = clamp((CE_sparse - CE_dense - slack) / scale, -1, 1)   both on one batch: its noise cancels
//   m = ema m + (1 - ema) v
//   I <- clamp(I exp(-rate m), minimum, maximum)               loss too high: press less
//   beta = clamp(I exp(-gain m), minimum, maximum)
// The loss answers beta late, so a controller that only integrates (gain 0) overshoots and swings;
// the direct term damps it.
#pragma once

#include <algorithm>
#include <cmath>

namespace clearhead {

struct MultiplierOptions {
  double initial = 0.1;
  double minimum = 0.02;
  double maximum = 100.0;
  double rate = 0.05;
  double ema = 0.9;
  double gain = 1.5;
  double scale = 0.02;  // nats of violation that count as full
};

class Multiplier {
 public:
  explicit Multiplier(const MultiplierOptions& options)
      : options_(options), integral_(options.initial) {}

  // `violation` = CE_sparse - CE_dense - slack, in nats.
  void Update(double violation) {
    const double v = std::clamp(violation / options_.scale, -1.0, 1.0);
    average_ = options_.ema * average_ + (1.0 - options_.ema) * v;
    integral_ = Clamped(integral_ * std::exp(-options_.rate * average_));
  }

  double beta() const { return Clamped(integral_ * std::exp(-options_.gain * average_)); }
  // What a checkpoint must remember.
  double integral() const { return integral_; }
  double average() const { return average_; }
  void Restore(double integral, double average) {
    integral_ = integral;
    average_ = average;
  }

 private:
  double Clamped(double beta) const { return std::clamp(beta, options_.minimum, options_.maximum); }

  MultiplierOptions options_;
  double integral_;
  double average_ = 0.0;
};

}  // namespace clearhead
