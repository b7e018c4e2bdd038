// SPDX-License-Identifier: MIT
// One step of training a transcoder on rows that are there, with Adam, and what its arithmetic
// alone would take.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "measure/best_seconds.h"
#include "train/parameter_block.h"
#include "train/transcoder_step.h"

namespace clearhead {

// Cross-layer, 6 layers of 4096 features, width 256, 16 of them firing, 4096 tokens: the shape of
// what is trained for `tale`.
class TranscoderWork {
 public:
  TranscoderWork();
  void Run();

  double tokens() const;
  // Of the last run: the encoder's product, and what fired: decoded, and two gradients through the
  // decoder and one through the encoder.
  double Flops() const;

 private:
  TranscoderShape shape_;
  TranscoderStep step_;
  ParameterBlock block_;
  std::vector<TranscoderTensors> weights_, gradients_;
  std::vector<Buffer<float>> x_;  // by layer
  Buffer<float> y_;
  TranscoderRows batch_;
};

struct TranscoderTimes {
  double seconds, tokens, flops;
};
TranscoderTimes TimeTranscoderStep(const Budget& budget);

}  // namespace clearhead
