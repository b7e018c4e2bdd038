// SPDX-License-Identifier: MIT
#include "model/embedding.h"

#include <algorithm>

#include "core/threads.h"

namespace clearhead {

void EmbeddingForward(const Pass& pass, const std::int32_t* ids, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width, T = pass.length, past = pass.past();
  const float* wte = pass.model.weights.wte;
  const float* wpe = pass.model.weights.wpe;
  // The stream starts as the token embeddings; positions come by way of `branch`, which is free
  // here.
  float* resid = activations.blocks[0].resid_pre;
  float* position = activations.branch;
  for (std::int64_t r = 0; r < R; ++r) {
    const float* token = wte + static_cast<std::int64_t>(ids[r]) * C;
    std::copy(token, token + C, resid + r * C);
    const float* place = wpe + (past + r % T) * C;
    std::copy(place, place + C, position + r * C);
  }
  pass.Visit({Tap::kEmbed, 0}, pass.Rows(resid, C));
  pass.Visit({Tap::kPosEmbed, 0}, pass.Rows(position, C));
  for (std::int64_t i = 0; i < R * C; ++i) resid[i] += position[i];
}

void EmbeddingBackward(const Pass& pass, const std::int32_t* ids, Activations& activations,
                       float* d_wte, float* d_wpe) {
  const std::int64_t R = pass.rows(), C = pass.config().width, T = pass.length;
  float* d_position = activations.d_resid;
  // Both have the stream's gradient; a hook that changes one must not change the other.
  if (pass.WantsGradient({Tap::kPosEmbed, 0}) || pass.WantsGradient({Tap::kEmbed, 0})) {
    std::copy(d_position, d_position + R * C, activations.branch);
    d_position = activations.branch;
    pass.VisitGradient({Tap::kPosEmbed, 0}, pass.Rows(d_position, C));
  }
  pass.VisitGradient({Tap::kEmbed, 0}, pass.Rows(activations.d_resid, C));
  if (d_wte == nullptr) return;
  // Split by columns: two rows may hold the same token, and this way no two threads meet.
  ParallelRanges(
      C,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = 0; r < R; ++r) {
          float* token = d_wte + static_cast<std::int64_t>(ids[r]) * C;
          float* place = d_wpe + (r % T) * C;
          for (std::int64_t i = first; i < last; ++i) {
            token[i] += activations.d_resid[r * C + i];
            place[i] += d_position[r * C + i];
          }
        }
      },
      LeastRows(R));
}

}  // namespace clearhead
