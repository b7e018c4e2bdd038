// SPDX-License-Identifier: MIT
// What every source of the residual graph wrote in a run: rows [B*T, S, C], S the sources. (The
// biases of the attention's output belong to no source; they are the same in every run.) Where a
// norm stands behind attention, a head's share is taken at the scale that the norm had in the run:
// shares then still add up to what joined the stream.
#pragma once

#include "circuits/kept_run.h"
#include "circuits/residual_graph.h"

namespace clearhead {

// rows [R, C], `stride` apart, through a norm with known scales [R].
void ScaleByNorm(const Norm& norm, std::int64_t rows, const float* scale, std::int64_t stride,
                 float* values);

Buffer<float> SourceRowsOf(const Model& model, const ResidualGraph& graph, const TaskBatch& batch,
                           const KeptRun& run);

}  // namespace clearhead
