// SPDX-License-Identifier: MIT
// Watches the loss of a run and stops it when it has broken.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "core/json.h"

namespace clearhead {

// Broken means: loss or gradient norm is not a finite number; or the loss is more than 3 nats above
// its own running average and worse than guessing (more than 1 nat above it).
class LossWatch {
 public:
  explicit LossWatch(double loss_of_guessing) : guess_(loss_of_guessing) {}

  // `where` is put behind what is no finite number: " on rank 3".
  void Check(std::int64_t step, double loss, double gradient_norm,
             const std::filesystem::path& checkpoints, const std::string& where = {}) {
    const auto stop = [&](const std::string& cause) {
      Fail(
          "training stopped at step {}: {}; try a lower --lr or a longer warm-up (the last good "
          "checkpoint, if "
          "there is one, is in '{}')",
          step, cause, checkpoints.string());
    };
    if (!std::isfinite(loss)) stop(fmt::format("the loss is {}{}", loss, where));
    if (!std::isfinite(gradient_norm)) {
      stop(fmt::format("the gradient norm is {}{}", gradient_norm, where));
    }
    if (seen_ > 0.0 && loss > average_ + 3.0 && loss > guess_ + 1.0) {
      stop(fmt::format("the loss exploded to {:.3f} from an average of {:.3f}", loss, average_));
    }
    average_ = seen_ == 0.0 ? loss : 0.95 * average_ + 0.05 * loss;
    seen_ = 1.0;
  }

  // For checkpoints. An empty state is that of a fresh watch.
  Json State() const { return {{"average", average_}, {"seen", seen_}}; }
  void Restore(const Json& state) {
    average_ = state.value("average", 0.0);
    seen_ = state.value("seen", 0.0);
  }

 private:
  double guess_;
  double average_ = 0.0;
  double seen_ = 0.0;  // 1 once there is an average
};

}  // namespace clearhead
