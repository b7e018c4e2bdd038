// SPDX-License-Identifier: MIT
// One place for the T x T matrices of all layers of a run that only looks at patterns: at T = 1024
// the patterns of GPT-2 together are 600 MB, those of one layer 50 MB.
#pragma once

#include "core/buffer.h"
#include "model/activations.h"
#include "model/hooks.h"

namespace clearhead {

class LayerMatrices {
 public:
  // For Hooks::Storage.
  float* Place(TapId id, const Shape& shape) {
    Buffer<float>* place = id.tap == Tap::kPattern      ? &pattern_
                           : id.tap == Tap::kScores     ? &scores_
                           : id.tap == Tap::kSparseMask ? &mask_
                                                        : nullptr;
    if (place == nullptr) return nullptr;
    if (place->size() < shape.size()) *place = Buffer<float>(shape.size());
    return place->data();
  }

  // When `layer`'s pattern passes by: gated layers keep the softmax before the gates for a backward
  // pass that never comes.
  static void ForgetBefore(std::int64_t layer, Activations& activations) {
    if (layer > 0) {
      activations.extras[static_cast<std::size_t>(layer - 1)].softmax = Buffer<float>();
    }
  }

 private:
  Buffer<float> pattern_, scores_, mask_;
};

}  // namespace clearhead
