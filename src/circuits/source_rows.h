// SPDX-License-Identifier: MIT
// What every source of the residual graph wrote in a run: rows [B*T, S, C], S the sources. (The
// biases of the attention's output belong to no source; they are the same in every run.)
#pragma once

#include "circuits/kept_run.h"
#include "circuits/residual_graph.h"

namespace clearhead {

Buffer<float> SourceRowsOf(const Model& model, const ResidualGraph& graph, const TaskBatch& batch,
                           const KeptRun& run);

}  // namespace clearhead
