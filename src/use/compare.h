// SPDX-License-Identifier: MIT
// Two models on the same windows of one text: what the second gains or loses against the first.
//
// A window is the paired unit: its two losses share the text, so their difference is free of how
// hard the text is. The interval of the mean difference is Student's over windows
// (core/confidence.h); windows of a text are taken as independent.
#pragma once

#include "core/confidence.h"
#include "use/evaluate.h"

namespace clearhead {

struct Comparison {
  Evaluation a, b;                   // without seconds: the models take turns
  WeightedMean difference;           // loss of b - loss of a, windows weighted by their tokens
  std::int64_t same_prediction = 0;  // tokens where both put the same token first
  double divergence = 0.0;           // mean KL(a || b) per token in nats
  double seconds = 0.0;
};

// Windows as in Evaluate, by default as long as both models can take. `options.gates` holds for
// whichever is gated. Refuses vocabularies of different size.
Comparison Compare(const Model& a, const Model& b, std::span<const std::int32_t> tokens,
                   const EvaluateOptions& options);

}  // namespace clearhead
