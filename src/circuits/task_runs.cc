// SPDX-License-Identifier: MIT
#include "circuits/task_runs.h"

#include <numeric>

#include "core/error.h"

namespace clearhead {
namespace {

// Of the runs of a rank's batches, clean and corrupted.
std::int64_t BytesOf(const ModelConfig& config, const std::vector<TaskBatch>& batches,
                     const Communicator& ranks) {
  std::int64_t rows = 0;
  for (std::size_t n = 0; n < batches.size(); ++n) {
    if (ranks.Owns(n)) rows += batches[n].size() * batches[n].length;
  }
  const std::int64_t of_row = 3 * config.width + config.heads_width() + 2 * config.kv_width() + 1;
  return 2 * 4 * rows * config.layers * of_row;
}

}  // namespace

TaskRuns::TaskRuns(const Model& model, const TaskSet& set, std::int64_t batch_rows,
                   std::int64_t keep_up_to, Communicator* ranks)
    : model_(model),
      set_(set),
      ranks_(ranks == nullptr ? alone_ : *ranks),
      batches_(MakeTaskBatches(set, model.config, batch_rows, ranks_.size())) {
  const bool keeps = BytesOf(model.config, batches_, ranks_) <= keep_up_to;
  std::vector<std::vector<double>> metrics(2, std::vector<double>(set.items.size()));
  for (const bool corrupted : {false, true}) {
    const std::size_t which = corrupted ? 1 : 0;
    if (keeps) kept_[which].resize(batches_.size());
    for (std::size_t n = 0; n < batches_.size(); ++n) {
      if (!Owns(n)) continue;
      auto run = std::make_shared<KeptRun>(RunAndKeep(model, set, batches_[n], corrupted));
      for (std::size_t b = 0; b < batches_[n].items.size(); ++b) {
        metrics[which][batches_[n].items[b]] = run->metrics[b];
      }
      if (keeps) kept_[which][n] = std::move(run);
    }
  }
  means_ = MeansOf(metrics);
}

std::vector<double> TaskRuns::MeansOf(const std::vector<std::vector<double>>& metrics) const {
  const std::size_t items = set_.items.size();
  std::vector<double> all;
  for (const std::vector<double>& of_items : metrics) {
    all.insert(all.end(), of_items.begin(), of_items.end());
  }
  ranks_.Sum(all);
  std::vector<double> means;
  for (std::size_t first = 0; first < all.size(); first += items) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
    means.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(items), 0.0) /
                    static_cast<double>(items));
  }
  return means;
}

std::vector<double> TaskRuns::SumOverItems(std::int64_t width, const MakePart& make) const {
  std::vector<std::int64_t> items;
  for (const TaskBatch& batch : batches_) items.push_back(batch.size());
  return SumInOrder(ranks_, items, width, make);
}

std::shared_ptr<const KeptRun> TaskRuns::Run(std::size_t batch, bool corrupted) const {
  Check(Owns(batch), "another rank's batch");
  const auto& kept = kept_[corrupted ? 1 : 0];
  if (!kept.empty()) return kept[batch];
  return std::make_shared<KeptRun>(RunAndKeep(model_, set_, batches_[batch], corrupted));
}

}  // namespace clearhead
