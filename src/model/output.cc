// SPDX-License-Identifier: MIT
#include "model/output.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"

namespace clearhead {
namespace {

LayerNorm FinalNorm(const Pass& pass) {
  const ModelTensors<const float>& w = pass.model.weights;
  return {w.ln_f_weight, w.ln_f_bias, pass.config().width, pass.config().layer_norm_epsilon};
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
  LayerNormForward(FinalNorm(pass), pass.rows(), activations.resid_final, activations.ln_f,
                   activations.ln_f_mean, activations.ln_f_scale);
  pass.Visit({Tap::kLnFinalScale, 0}, pass.Rows(activations.ln_f_scale, 1));
  pass.Visit({Tap::kLnFinalNormalized, 0}, pass.Rows(activations.ln_f, C));
}

void LogitsForward(const Pass& pass, std::int64_t rows, const float* normalized, float* logits) {
  const std::int64_t C = pass.config().width, V = pass.config().vocabulary;
  const float* lm_head = pass.model.weights.lm_head;
  if (pass.packed != nullptr) {
    return Bf16Gemm({.m = rows,
                     .a = normalized,
                     .lda = C,
                     .b = &pass.packed->lm_head.forward,
                     .c = logits,
                     .ldc = V});
  }
  if (rows == 1) return MatVecT(V, C, lm_head, normalized, logits);
  Gemm({rows, V, C}, {normalized, C}, {lm_head, C, Op::kTranspose}, logits, V,
       /*accumulate=*/false);
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
                    Activations& activations, float* d_lm_head, PackedBf16* scratch) {
  const std::int64_t C = pass.config().width, V = pass.config().vocabulary;
  const float* normalized = activations.ln_f + first * C;
  const float* d_logits = activations.logits;
  float* d_normalized = activations.d_ln + first * C;
  // logits = normalized lm_head^T:  d normalized = d_logits lm_head,  d lm_head += d_logits^T
  // normalized
  if (pass.packed != nullptr) {
    Bf16Gemm({.m = rows,
              .a = d_logits,
              .lda = V,
              .b = &pass.packed->lm_head.transposed,
              .c = d_normalized,
              .ldc = C});
    if (d_lm_head == nullptr) return;
    scratch->Pack(normalized, rows, C, C, /*transposed=*/false);
    Bf16Gemm({.m = V,
              .a = d_logits,
              .lda = V,
              .a_transposed = true,
              .b = scratch,
              .c = d_lm_head,
              .ldc = C,
              .accumulate = true});
  } else {
    Gemm({rows, C, V}, {d_logits, V}, {pass.model.weights.lm_head, C}, d_normalized, C,
         /*accumulate=*/false);
    if (d_lm_head == nullptr) return;
    Gemm({V, C, rows}, {d_logits, V, Op::kTranspose}, {normalized, C}, d_lm_head, C,
         /*accumulate=*/true);
  }
}

double LossBackward(const Pass& pass, const std::int32_t* targets, float scale,
                    Activations& activations, float* d_lm_head, PackedBf16* scratch) {
  const std::int64_t R = pass.rows(), C = pass.config().width, V = pass.config().vocabulary;
  const std::int64_t count = CountTargets(pass, targets);
  const float row_scale = count == 0 ? 0.0f : scale / static_cast<float>(count);
  for (std::int64_t first = 0; first < R; first += activations.logit_rows) {
    const std::int64_t rows = std::min(activations.logit_rows, R - first);
    LogitsForward(pass, rows, activations.ln_f + first * C, activations.logits);
    CrossEntropy(rows, V, targets + first, activations.logits, activations.losses + first,
                 row_scale);
    LogitsBackward(pass, rows, first, activations, d_lm_head, scratch);
  }
  return MeanLoss(R, activations.losses, count);
}

void FinalNormBackward(const Pass& pass, Activations& activations, float* d_weight, float* d_bias) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  pass.VisitGradient({Tap::kLnFinalNormalized, 0}, pass.Rows(activations.d_ln, C));
  std::fill(activations.d_resid, activations.d_resid + R * C, 0.0f);
  LayerNormBackward(FinalNorm(pass), R, activations.resid_final, activations.ln_f_mean,
                    activations.ln_f_scale, activations.d_ln, activations.d_resid, d_weight,
                    d_bias);
}

}  // namespace clearhead
