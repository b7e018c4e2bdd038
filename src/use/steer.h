// SPDX-License-Identifier: MIT
// Steering: a direction added to the stream at one place in growing doses, and what each dose does
// to the prediction.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "use/knockout.h"

namespace clearhead {

struct SteerPoint {
  double dose = 0.0;
  std::vector<Prediction> likeliest;  // after the prompt
  std::vector<double> probabilities;  // of the targets, after the prompt
  double divergence = 0.0;            // KL(undosed || dosed) after the prompt, in nats
  double loss = 0.0;                  // of the prompt's own tokens
};

struct SteerOptions {
  std::vector<double> doses;
  std::vector<std::int32_t> targets;
  std::int64_t likeliest = 5;
  GateRun gates = {};
};

// Logits [T,V] of the prompt with a dose of whatever is added. Dose 0 is the prompt as it is.
using DosedRun = std::function<std::vector<float>(double dose)>;

// One point for each dose, in their order. Refuses targets outside the vocabulary and doses that
// are no numbers.
std::vector<SteerPoint> DoseResponse(const ModelConfig& config, std::span<const std::int32_t> ids,
                                     const SteerOptions& options, const DosedRun& run);

// dose * direction [C] is added to blocks.<layer>.hook_resid_pre at `positions` (empty: all).
DosedRun AddDirection(const Model& model, std::span<const std::int32_t> ids,
                      std::vector<float> direction, std::int64_t layer,
                      std::vector<std::int64_t> positions, const GateRun& gates);

// What a head writes into the stream at a position of a prompt, [C], without the attention's bias.
std::vector<float> HeadOutput(const Model& model, std::span<const std::int32_t> ids,
                              std::int64_t layer, std::int64_t head, std::int64_t position,
                              const GateRun& gates);

// The stream before `layer` at the last position of one text less that of another, [C].
std::vector<float> StreamDifference(const Model& model, std::span<const std::int32_t> towards,
                                    std::span<const std::int32_t> away, std::int64_t layer,
                                    const GateRun& gates);

}  // namespace clearhead
