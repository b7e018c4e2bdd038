// SPDX-License-Identifier: MIT
// The prompts of a task in batches of one length.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "tasks/task_items.h"

namespace clearhead {

struct TaskBatch {
  std::vector<std::size_t> items;  // which of the set's
  std::int64_t length = 0;         // T
  // Leading positions at which every prompt has its twin's token, less than T: whatever mixes the
  // two runs is equal there.
  std::int64_t shared = 0;
  std::vector<std::int32_t> clean, corrupted;  // [B,T]

  std::int64_t size() const { return static_cast<std::int64_t>(items.size()); }
  const std::vector<std::int32_t>& Prompts(bool of_corrupted) const {
    return of_corrupted ? corrupted : clean;
  }
};

inline constexpr std::int64_t kTaskBatchRows = 512;  // enough for fast products, little memory

// At most `rows` positions per batch, but at least one prompt. Prompts with equally long shared
// beginnings are put together. Prompts of one length go into as many batches as are needed for that
// and for every one of `ranks` to get as many of them. The order of the prompts, batch after batch,
// depends on neither. Throws Error for what the model cannot take: prompts beyond its
// positions, tokens and answers beyond its vocabulary, no items.
std::vector<TaskBatch> MakeTaskBatches(const TaskSet& set, const ModelConfig& config,
                                       std::int64_t rows = kTaskBatchRows, std::int64_t ranks = 1);

}  // namespace clearhead
