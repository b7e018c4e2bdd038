// SPDX-License-Identifier: MIT
// The logit lens: what a model would predict if it ended earlier, and what each head says by
// itself.
//
//   stream   after the embedding and after every layer, at every position: final norm, output
//            matrix, softmax. The last row is the model's own prediction.
//   heads    at one position: a head's output through the final norm, whose divisor stays what it
//            was, and the output matrix. That is the head's share of every logit: together with the
//            shares of embedding, MLPs and biases it adds up to the logits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "model/intervention.h"
#include "use/predict.h"

namespace clearhead {

struct LensOptions {
  std::int64_t likeliest = 5;  // tokens of each cell, and of each head both ways
  std::optional<std::int32_t> target =
      {};                      // followed everywhere; none: what each position predicts
  std::int64_t position = -1;  // of the heads; -1: the last
  bool heads = true;
  GateRun gates = {};
  std::vector<Intervention> interventions = {};  // in the run that is looked through
  std::function<void()> between = {};            // called between layers; may throw
};

struct LensCell {
  std::vector<Prediction> likeliest;
  double target_probability = 0.0;
  std::int64_t target_rank = 0;  // 0: the likeliest
};

struct LogitShare {
  std::int32_t token = 0;
  double logit = 0.0;
};

struct HeadLens {
  std::int64_t layer = 0, head = 0;
  double target_logit = 0.0;                // its share of the target's logit
  std::vector<LogitShare> raised, lowered;  // what it says most, strongest first
};

struct Lens {
  std::int64_t layers = 0, length = 0;
  std::vector<std::int32_t> targets;          // [T]
  std::vector<std::vector<LensCell>> stream;  // [layers + 1][T]; 0: the embedding
  std::int64_t position = 0;                  // of `heads`
  std::vector<HeadLens> heads;                // layer by layer; empty without options.heads
};

// Refuses what CheckTokens refuses, a target outside the vocabulary and a position outside the
// prompt. Heads of models that normalise what attention gives (OLMo 2) have no share that adds up:
// these are refused where options.heads asks for them.
Lens LookThrough(const Model& model, std::span<const std::int32_t> ids, const LensOptions& options);

}  // namespace clearhead
