// SPDX-License-Identifier: MIT
#include "circuits/source_rows.h"

#include <algorithm>

#include "core/error.h"
#include "model/head_weights.h"

namespace clearhead {

void ScaleByNorm(const Norm& norm, std::int64_t rows, const float* scale, std::int64_t stride,
                 float* values) {
  Check(norm.kind == NormKind::kRms, "only an RMS norm is linear once its scale is known");
  for (std::int64_t r = 0; r < rows; ++r) {
    float* row = values + r * stride;
    for (std::int64_t i = 0; i < norm.width; ++i) {
      row[i] *= (norm.weight == nullptr ? 1.0f : norm.weight[i]) / scale[r];
    }
  }
}

Buffer<float> SourceRowsOf(const Model& model, const ResidualGraph& graph, const TaskBatch& batch,
                           const KeptRun& run) {
  const std::int64_t R = batch.size() * batch.length, S = graph.source_count();
  const std::int64_t C = model.config.width, D = model.config.head_size(),
                     Z = model.config.heads_width();
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
    const BlockLayers layers = LayersOf(model, layer);
    for (std::int64_t h = 0; h < graph.heads(); ++h) {
      float* rows = sources.data() + graph.Head(layer, h) * C;
      LinearForward(InputsOf(layers.output.linear, h * D, D), R, {run.z[at].data() + h * D, Z},
                    {rows, S * C});
      if (model.config.norm_place == NormPlace::kAfter) {
        ScaleByNorm(layers.attention_norm, R, run.attention_scale[at].data(), S * C, rows);
      }
    }
    copy(run.mlp_out[at], graph.Mlp(layer));
  }
  return sources;
}

}  // namespace clearhead
