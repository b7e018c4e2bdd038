// SPDX-License-Identifier: MIT
// The task metric's gradient, into a model.
#pragma once

#include <span>

#include "circuits/task_batches.h"
#include "model/activations.h"
#include "model/pass.h"

namespace clearhead {

// d metric / d logits [V], overwritten.
void MetricGradient(const TaskItem& item, TaskMetric metric, std::span<const float> logits,
                    std::span<float> d_logits);

// After ForwardToFinalNorm on these activations (Keep::kAll): backward of L = -metric of every item
// at its last position, for the hooks of the pass.
void BackwardFromMetric(const Pass& pass, const TaskSet& set, const TaskBatch& batch,
                        const std::int32_t* ids, Activations& activations);

}  // namespace clearhead
