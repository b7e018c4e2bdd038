// SPDX-License-Identifier: MIT
#include "circuits/task_runs.h"

#include <numeric>

namespace clearhead {
namespace {

// Of the runs of all batches, clean and corrupted.
std::int64_t BytesOf(const ModelConfig& config, const std::vector<TaskBatch>& batches) {
  std::int64_t rows = 0;
  for (const TaskBatch& batch : batches) rows += batch.size() * batch.length;
  const std::int64_t of_row = 3 * config.width + config.heads_width() + 2 * config.kv_width() + 1;
  return 2 * 4 * rows * config.layers * of_row;
}

}  // namespace

TaskRuns::TaskRuns(const Model& model, const TaskSet& set, std::int64_t batch_rows,
                   std::int64_t keep_up_to)
    : model_(model), set_(set), batches_(MakeTaskBatches(set, model.config, batch_rows)) {
  const bool keeps = BytesOf(model.config, batches_) <= keep_up_to;
  for (const bool corrupted : {false, true}) {
    std::vector<double> metrics(set.items.size());
    for (const TaskBatch& batch : batches_) {
      auto run = std::make_shared<KeptRun>(RunAndKeep(model, set, batch, corrupted));
      for (std::size_t b = 0; b < batch.items.size(); ++b) {
        metrics[batch.items[b]] = run->metrics[b];
      }
      if (keeps) kept_[corrupted ? 1 : 0].push_back(std::move(run));
    }
    means_[corrupted ? 1 : 0] =
        std::accumulate(metrics.begin(), metrics.end(), 0.0) / static_cast<double>(metrics.size());
  }
}

std::shared_ptr<const KeptRun> TaskRuns::Run(std::size_t batch, bool corrupted) const {
  const auto& kept = kept_[corrupted ? 1 : 0];
  if (!kept.empty()) return kept[batch];
  return std::make_shared<KeptRun>(RunAndKeep(model_, set_, batches_[batch], corrupted));
}

}  // namespace clearhead
