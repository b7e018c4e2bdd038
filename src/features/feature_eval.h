// SPDX-License-Identifier: MIT
// How well a transcoder stands for a model's MLPs on a text. Windows are those of use/evaluate.h.
//
// Over the positions that count, with y the MLP outputs of a layer and e what the reconstruction
// leaves of them:
//   explained variance                1 - sum |e|^2 / sum |y - mean of y|^2
//   explained variance by dimension   the same for each dimension, averaged: a few huge dimensions
//                                     flatter the plain figure
//   L0                                features that fire at a position, on average
//   silent                            share of features that never fire
// Positions of a window before the transcoder's first_position (0 has other magnitudes than all
// others, and our training leaves it out) do not count and keep their MLP outputs when the others
// are replaced, unless all positions are asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "features/transcoder.h"
#include "model/pass.h"

namespace clearhead {

struct FeatureEvalOptions {
  std::int64_t context = 0;     // 0: the model's positions
  std::int64_t max_tokens = 0;  // predictions at most; 0: all
  bool all_positions = false;
  GateRun gates = {};
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  Communicator* ranks = nullptr;  // groups of windows are shared out among them; null: one alone
};

struct FeatureLayerEval {
  double explained_variance = 0.0;
  double explained_by_dimension = 0.0;
  double l0 = 0.0;
  double silent = 0.0;
  double error_norm = 0.0, output_norm = 0.0;  // means of |e| and |y|
  double loss_replaced = 0.0;                  // with this layer's MLP alone replaced
};

struct FeatureEval {
  std::int64_t tokens = 0;  // predictions
  std::int64_t windows = 0, context = 0;
  std::int64_t first_position = 0;  // of a window that counts
  std::int64_t positions = 0;       // that count
  double loss = 0.0;                // the model's own
  double loss_replaced = 0.0;       // all MLPs replaced
  double loss_errors_kept = 0.0;    // all replaced, what was left over added again: the model's own
  double loss_mean = 0.0;           // all MLP outputs at their mean over the positions that count
  double seconds = 0.0;
  std::vector<FeatureLayerEval> layers;

  // Mean over the layers of one of their figures.
  double Mean(double FeatureLayerEval::*figure) const;
  // Share of what the MLPs are worth that the features keep: (mean - replaced) / (mean - own).
  double recovered() const { return (loss_mean - loss_replaced) / (loss_mean - loss); }
};

// Refuses a transcoder of another model, and a text without a position that counts.
FeatureEval EvaluateFeatures(const Model& model, const Transcoder& transcoder,
                             std::span<const std::int32_t> tokens,
                             const FeatureEvalOptions& options);

}  // namespace clearhead
