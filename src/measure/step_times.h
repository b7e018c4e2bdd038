// SPDX-License-Identifier: MIT
// Whole optimiser steps for `clearhead bench`.
#pragma once

#include "model/model.h"
#include "train/step.h"

namespace clearhead {

// Tokens per second of a step with everything in it: forward, backward, clipping, AdamW.
struct StepRates {
  double dense;     // ordinary training
  double gated;     // sampled gates and edge penalty, no teacher
  double sparsify;  // the step of `clearhead sparsify`: the same and a frozen dense teacher
};
StepRates TimeSteps(const Model& model, const StepShape& shape, double budget);

double TrainTokensPerSecond(const Model& model, const StepShape& shape, double budget);

}  // namespace clearhead
