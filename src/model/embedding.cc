// SPDX-License-Identifier: MIT
#include "model/embedding.h"

#include <algorithm>

#include "core/threads.h"

namespace clearhead {
namespace {

bool LearnsPositions(const Pass& pass) { return pass.config().position == PositionKind::kLearned; }

}  // namespace

void EmbeddingForward(const Pass& pass, const std::int32_t* ids, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width, T = pass.length, past = pass.past();
  const Weight tokens = pass.model.weights(Role::kTokenEmbedding);
  float* resid = activations.blocks[0].resid_pre;
  for (std::int64_t r = 0; r < R; ++r) {
    tokens.CopyTo(static_cast<std::int64_t>(ids[r]) * C, C, resid + r * C);
  }
  pass.Visit({Tap::kEmbed, 0}, pass.Rows(resid, C));
  if (!LearnsPositions(pass)) return;
  // Positions come by way of `branch`, which is free here.
  const Weight positions = pass.model.weights(Role::kPositionEmbedding);
  float* position = activations.branch;
  for (std::int64_t r = 0; r < R; ++r) {
    positions.CopyTo((past + r % T) * C, C, position + r * C);
  }
  pass.Visit({Tap::kPosEmbed, 0}, pass.Rows(position, C));
  for (std::int64_t i = 0; i < R * C; ++i) resid[i] += position[i];
}

void EmbeddingBackward(const Pass& pass, const std::int32_t* ids, Activations& activations,
                       float* d_tokens, float* d_positions) {
  const std::int64_t R = pass.rows(), C = pass.config().width, T = pass.length;
  const float* d_position = activations.d_resid;
  // Both have the stream's gradient; a hook that changes one must not change the other.
  if (LearnsPositions(pass) &&
      (pass.WantsGradient({Tap::kPosEmbed, 0}) || pass.WantsGradient({Tap::kEmbed, 0}))) {
    std::copy(activations.d_resid, activations.d_resid + R * C, activations.branch);
    d_position = activations.branch;
    pass.VisitGradient({Tap::kPosEmbed, 0}, pass.Rows(activations.branch, C));
  }
  pass.VisitGradient({Tap::kEmbed, 0}, pass.Rows(activations.d_resid, C));
  if (d_tokens == nullptr && d_positions == nullptr) return;
  // Split by columns: two rows may hold the same token, and this way no two threads meet.
  ParallelRanges(
      C,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = 0; r < R; ++r) {
          if (d_tokens != nullptr) {
            float* token = d_tokens + static_cast<std::int64_t>(ids[r]) * C;
            for (std::int64_t i = first; i < last; ++i) token[i] += activations.d_resid[r * C + i];
          }
          if (d_positions != nullptr) {
            float* place = d_positions + (r % T) * C;
            for (std::int64_t i = first; i < last; ++i) place[i] += d_position[r * C + i];
          }
        }
      },
      LeastRows(R));
}

}  // namespace clearhead
