// SPDX-License-Identifier: MIT
#include "circuits/metric_gradient.h"

#include <algorithm>
#include <cmath>

#include "circuits/kept_run.h"
#include "circuits/task_score.h"
#include "core/threads.h"
#include "model/head_weights.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {

void MetricGradient(const TaskItem& item, TaskMetric metric, std::span<const float> logits,
                    std::span<float> d_logits) {
  std::fill(d_logits.begin(), d_logits.end(), 0.0f);
  const auto add = [&](const std::vector<std::int32_t>& ids, double amount) {
    for (const std::int32_t id : ids)
      d_logits[static_cast<std::size_t>(id)] += static_cast<float>(amount);
  };
  if (metric == TaskMetric::kLogitDifference) {
    if (!item.answers.empty()) add(item.answers, 1.0 / static_cast<double>(item.answers.size()));
    if (!item.wrongs.empty()) add(item.wrongs, -1.0 / static_cast<double>(item.wrongs.size()));
    return;
  }
  // m = sum_j s_j P_j with s = 1 for answers, -1 for wrongs:  dm/dlogit_j = P_j (s_j - m).
  add(item.answers, 1.0);
  add(item.wrongs, -1.0);
  const double value = TaskMetricOf(item, metric, logits);
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  for (std::size_t v = 0; v < logits.size(); ++v) {
    const double probability = std::exp(static_cast<double>(logits[v]) - largest) / total;
    d_logits[v] = static_cast<float>(probability * (static_cast<double>(d_logits[v]) - value));
  }
}

void BackwardFromMetric(const Pass& pass, const TaskSet& set, const TaskBatch& batch,
                        const std::int32_t* ids, Activations& activations) {
  const std::int64_t B = batch.size(), T = batch.length, C = pass.config().width,
                     V = pass.config().vocabulary;
  const Buffer<float> last = LastRows(B, T, C, activations.ln_f);
  Buffer<float> logits(B * V), d_logits(B * V), d_last(B * C);
  LogitsForward(pass, B, last.data(), logits.data());
  ParallelFor(B, [&](std::int64_t b) {
    const auto row = [&](Buffer<float>& of) {
      return std::span(of.data() + b * V, static_cast<std::size_t>(V));
    };
    MetricGradient(set.items[batch.items[static_cast<std::size_t>(b)]], set.metric, row(logits),
                   row(d_logits));
    for (float& d : row(d_logits)) d = -d;
  });
  LinearBackwardInput(OutputLayer(pass.model), B, d_logits.data(), d_last.data());
  std::fill(activations.d_ln, activations.d_ln + B * T * C, 0.0f);
  for (std::int64_t b = 0; b < B; ++b) {
    std::copy(d_last.data() + b * C, d_last.data() + (b + 1) * C,
              activations.d_ln + (b * T + T - 1) * C);
  }
  BackwardFromFinalNorm(pass, ids, activations, nullptr, nullptr);
}

}  // namespace clearhead
