// SPDX-License-Identifier: MIT
// What a model expects after a prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/pass.h"

namespace clearhead {

struct Prediction {
  std::int32_t token = 0;
  double probability = 0.0;
};

// The `count` likeliest tokens of one row of logits [V], likeliest first (equal ones by id).
std::vector<Prediction> Likeliest(std::span<const float> logits, std::int64_t count);

// log sum exp of a row of logits: loss of token t = LogSumExp - logits[t].
double LogSumExp(std::span<const float> logits);

struct PromptPrediction {
  std::vector<Prediction> likeliest;
  // Gated models: open gates and causal pairs of all heads over the whole prompt, its last token
  // included, which makes the prediction.
  std::int64_t open_edges = 0, causal_edges = 0;
};

// The likeliest next tokens after a prompt.
PromptPrediction PredictNext(const Model& model, std::span<const std::int32_t> prompt,
                             std::int64_t count, const GateRun& gates = {});

}  // namespace clearhead
