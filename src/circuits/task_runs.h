// SPDX-License-Identifier: MIT
// A task's prompts and their corrupted twins, run once by a model: what every stage of the search
// for a circuit starts from.
//
// Ranks share the batches out: each runs its own in every stage, then all know the figures of all.
// Means go over the items in the set's order, other sums over the items as batches have them, so
// results have the same bits for any number of ranks.
#pragma once

#include <memory>
#include <vector>

#include "circuits/kept_run.h"
#include "core/rank_sums.h"

namespace clearhead {

class TaskRuns {
 public:
  // Runs are kept while all of them together take at most this; otherwise they are made anew
  // whenever one is asked for, and only their metrics stay.
  static constexpr std::int64_t kKeepUpTo = std::int64_t{512} << 20;

  // Both stay the caller's. Implicit, so that {model, set} can be asked a single question.
  // NOLINTNEXTLINE(google-explicit-constructor)
  TaskRuns(const Model& model, const TaskSet& set, std::int64_t batch_rows = kTaskBatchRows,
           std::int64_t keep_up_to = kKeepUpTo, Communicator* ranks = nullptr);
  TaskRuns(const TaskRuns&) = delete;
  TaskRuns& operator=(const TaskRuns&) = delete;

  const Model& model() const { return model_; }
  const ModelConfig& config() const { return model_.config; }
  const TaskSet& set() const { return set_; }
  const std::vector<TaskBatch>& batches() const { return batches_; }
  Communicator& ranks() const { return ranks_; }
  // Whether this rank runs a batch. Only its own are asked for below.
  bool Owns(std::size_t batch) const { return ranks_.Owns(batch); }

  // Means over the items, [count], of metrics [count][items] that hold those of one's own batches
  // and 0 for the others.
  std::vector<double> MeansOf(const std::vector<std::vector<double>>& metrics) const;
  // The sum over all items of values that `make` finds for those of a batch (SumInOrder).
  std::vector<double> SumOverItems(std::int64_t width, const MakePart& make) const;

  std::shared_ptr<const KeptRun> Clean(std::size_t batch) const { return Run(batch, false); }
  std::shared_ptr<const KeptRun> Corrupted(std::size_t batch) const { return Run(batch, true); }

  // Mean metrics over the items, in the set's order whatever the batches.
  double clean_metric() const { return means_[0]; }
  double corrupted_metric() const { return means_[1]; }

 private:
  std::shared_ptr<const KeptRun> Run(std::size_t batch, bool corrupted) const;

  const Model& model_;
  const TaskSet& set_;
  Communicator alone_;
  Communicator& ranks_;
  std::vector<TaskBatch> batches_;
  std::vector<std::shared_ptr<const KeptRun>> kept_[2];  // clean, corrupted; empty: not kept
  std::vector<double> means_;                            // clean, corrupted
};

}  // namespace clearhead
