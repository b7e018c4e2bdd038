// SPDX-License-Identifier: MIT
#include "circuits/source_rows.h"

#include <algorithm>

#include "kernels/gemm.h"

namespace clearhead {

Buffer<float> SourceRowsOf(const Model& model, const ResidualGraph& graph, const TaskBatch& batch,
                           const KeptRun& run) {
  const std::int64_t R = batch.size() * batch.length, S = graph.source_count();
  const std::int64_t C = model.config.width, D = model.config.head_size();
  Buffer<float> sources(R * S * C);
  const auto copy = [&](const Buffer<float>& rows, std::int64_t source) {
    for (std::int64_t r = 0; r < R; ++r) {
      std::copy(rows.data() + r * C, rows.data() + (r + 1) * C,
                sources.data() + (r * S + source) * C);
    }
  };
  copy(run.resid_pre[0], graph.input());
  for (std::int64_t layer = 0; layer < graph.layers(); ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    const float* projection = model.weights.blocks[at].attn_c_proj_weight;
    for (std::int64_t h = 0; h < graph.heads(); ++h) {
      Gemm({R, C, D}, {run.z[at].data() + h * D, C}, {projection + h * D * C, C},
           sources.data() + graph.Head(layer, h) * C, S * C, /*accumulate=*/false);
    }
    copy(run.mlp_out[at], graph.Mlp(layer));
  }
  return sources;
}

}  // namespace clearhead
