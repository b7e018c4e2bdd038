// SPDX-License-Identifier: MIT
// A task's prompts and their corrupted twins, run once by a model: what every stage of the search
// for a circuit starts from.
#pragma once

#include <memory>
#include <vector>

#include "circuits/kept_run.h"

namespace clearhead {

class TaskRuns {
 public:
  // Runs are kept while all of them together take at most this; otherwise they are made anew
  // whenever one is asked for, and only their metrics stay.
  static constexpr std::int64_t kKeepUpTo = std::int64_t{512} << 20;

  // Both stay the caller's. Implicit, so that {model, set} can be asked a single question.
  // NOLINTNEXTLINE(google-explicit-constructor)
  TaskRuns(const Model& model, const TaskSet& set, std::int64_t batch_rows = kTaskBatchRows,
           std::int64_t keep_up_to = kKeepUpTo);

  const Model& model() const { return model_; }
  const ModelConfig& config() const { return model_.config; }
  const TaskSet& set() const { return set_; }
  const std::vector<TaskBatch>& batches() const { return batches_; }

  std::shared_ptr<const KeptRun> Clean(std::size_t batch) const { return Run(batch, false); }
  std::shared_ptr<const KeptRun> Corrupted(std::size_t batch) const { return Run(batch, true); }

  // Mean metrics over the items, in the set's order whatever the batches.
  double clean_metric() const { return means_[0]; }
  double corrupted_metric() const { return means_[1]; }

 private:
  std::shared_ptr<const KeptRun> Run(std::size_t batch, bool corrupted) const;

  const Model& model_;
  const TaskSet& set_;
  std::vector<TaskBatch> batches_;
  std::vector<std::shared_ptr<const KeptRun>> kept_[2];  // clean, corrupted; empty: not kept
  double means_[2] = {0.0, 0.0};
};

}  // namespace clearhead
