// SPDX-License-Identifier: MIT
// One step of training a transcoder on rows that are there, with Adam, and what its arithmetic
// alone would take.
#pragma once

#include "measure/best_seconds.h"

namespace clearhead {

struct TranscoderTimes {
  double seconds = 0.0;
  double tokens = 0.0;
  // Of the encoder's product, and of what fires: decoded, and two gradients through the decoder and
  // one through the encoder.
  double flops = 0.0;
};

// Cross-layer, 6 layers of 4096 features, width 256, 16 of them firing, 4096 tokens: the shape of
// what is trained for `tale`.
TranscoderTimes TimeTranscoderStep(const Budget& budget);

}  // namespace clearhead
