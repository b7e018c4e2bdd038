// SPDX-License-Identifier: MIT
// One run over a batch of task prompts with everything kept that runs with a part of it changed
// start from.
#pragma once

#include <vector>

#include "circuits/task_batches.h"
#include "core/buffer.h"
#include "model/pass.h"

namespace clearhead {

struct KeptRun {
  std::vector<Buffer<float>> resid_pre, resid_mid, z, mlp_out;  // L of each, [B*T, C], z [B*T, HD]
  std::vector<Buffer<float>> attention_scale;                   // L of [B*T], norms behind only
  KeyValueCache cache;                                          // of all T positions
  std::vector<double> metrics;                                  // [B]
};

KeptRun RunAndKeep(const Model& model, const TaskSet& set, const TaskBatch& batch, bool corrupted);

// The metric of every item of the batch, from the normalised rows [pass.batch, C] of the last
// positions. A pass may hold the batch's items several times over. A logit difference multiplies
// with the answers' rows of the unembedding only.
std::vector<double> LastMetrics(const Pass& pass, const TaskSet& set, const TaskBatch& batch,
                                const float* normalized);

// Rows [B,C] of the last positions of [B,T,C].
Buffer<float> LastRows(std::int64_t batch, std::int64_t length, std::int64_t width,
                       const float* rows);

}  // namespace clearhead
