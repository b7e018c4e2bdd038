// SPDX-License-Identifier: MIT
#include "model/output.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/loss.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

// W_U, packed where the pass has it so.
Linear OutputOf(const Pass& pass) {
  Linear layer = OutputLayer(pass.model);
  if (const PackedWeights* packed = pass.PackedOrNull()) packed->Use(packed->output, &layer);
  return layer;
}

// Those that are not skipped.
std::int64_t CountTargets(const Pass& pass, const std::int32_t* targets) {
  std::int64_t count = 0;
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    if (targets[r] >= pass.config().vocabulary) {
      Fail("target {} at position {} is outside the vocabulary of {}", targets[r], r % pass.length,
           pass.config().vocabulary);
    }
    count += targets[r] >= 0;
  }
  return count;
}

double MeanLoss(std::int64_t rows, const float* losses, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) sum += losses[r];
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

}  // namespace

void FinalNormForward(const Pass& pass, Activations& activations) {
  const std::int64_t C = pass.config().width;
  NormForward(FinalNormOf(pass.model), pass.rows(), activations.resid_final, activations.ln_f,
              activations.ln_f_mean, activations.ln_f_scale);
  pass.Visit({Tap::kLnFinalScale, 0}, pass.Rows(activations.ln_f_scale, 1));
  pass.Visit({Tap::kLnFinalNormalized, 0}, pass.Rows(activations.ln_f, C));
}

void LogitsForward(const Pass& pass, std::int64_t rows, const float* normalized, float* logits) {
  LinearForward(OutputOf(pass), rows, normalized, logits);
}

double LossForward(const Pass& pass, const std::int32_t* targets, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width, V = pass.config().vocabulary;
  const std::int64_t count = CountTargets(pass, targets);
  for (std::int64_t first = 0; first < R; first += activations.logit_rows) {
    const std::int64_t rows = std::min(activations.logit_rows, R - first);
    LogitsForward(pass, rows, activations.ln_f + first * C, activations.logits);
    CrossEntropy(rows, V, targets + first, activations.logits, activations.losses + first,
                 /*gradient_scale=*/0.0f);
  }
  return MeanLoss(R, activations.losses, count);
}

void LogitsBackward(const Pass& pass, std::int64_t rows, std::int64_t first,
                    Activations& activations, float* d_output, PackedBf16* scratch) {
  const std::int64_t C = pass.config().width;
  const Linear output = OutputOf(pass);
  LinearBackwardInput(output, rows, activations.logits, activations.d_ln + first * C);
  LinearBackwardWeight(output, rows, activations.ln_f + first * C, activations.logits, scratch,
                       d_output, nullptr);
}

double LossBackward(const Pass& pass, const std::int32_t* targets, float scale,
                    Activations& activations, float* d_output, PackedBf16* scratch) {
  const std::int64_t R = pass.rows(), C = pass.config().width, V = pass.config().vocabulary;
  const std::int64_t count = CountTargets(pass, targets);
  const float row_scale = count == 0 ? 0.0f : scale / static_cast<float>(count);
  for (std::int64_t first = 0; first < R; first += activations.logit_rows) {
    const std::int64_t rows = std::min(activations.logit_rows, R - first);
    LogitsForward(pass, rows, activations.ln_f + first * C, activations.logits);
    CrossEntropy(rows, V, targets + first, activations.logits, activations.losses + first,
                 row_scale);
    LogitsBackward(pass, rows, first, activations, d_output, scratch);
  }
  return MeanLoss(R, activations.losses, count);
}

void FinalNormBackward(const Pass& pass, Activations& activations, float* d_weight, float* d_bias) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  pass.VisitGradient({Tap::kLnFinalNormalized, 0}, pass.Rows(activations.d_ln, C));
  std::fill(activations.d_resid, activations.d_resid + R * C, 0.0f);
  NormBackward(FinalNormOf(pass.model), R, activations.resid_final, activations.ln_f_mean,
               activations.ln_f_scale, activations.d_ln, activations.d_resid, d_weight, d_bias);
}

}  // namespace clearhead
