// SPDX-License-Identifier: MIT
#include "circuits/task_batches.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "model/run.h"

namespace clearhead {
namespace {

std::int64_t SharedBeginning(const TaskItem& item) {
  const auto [clean, corrupted] =
      std::mismatch(item.clean.begin(), item.clean.end(), item.corrupted.begin());
  return std::min<std::int64_t>(clean - item.clean.begin(),
                                static_cast<std::int64_t>(item.clean.size()) - 1);
}

void CheckItem(const TaskSet& set, std::size_t n, const ModelConfig& config) {
  const TaskItem& item = set.items[n];
  const auto length = static_cast<std::int64_t>(item.clean.size());
  if (item.clean.size() != item.corrupted.size()) {
    Fail(
        "task '{}', item {}: the clean prompt has {} tokens, the corrupted one {}; twins need one "
        "length",
        set.name, n, item.clean.size(), item.corrupted.size());
  }
  CheckTokens(config, item.clean, 1, length);
  CheckTokens(config, item.corrupted, 1, length);
  for (const auto* list : {&item.answers, &item.wrongs}) {
    for (const std::int32_t id : *list) {
      if (id < 0 || id >= config.vocabulary) {
        Fail("task '{}', item {}: answer {} is outside the vocabulary of {}", set.name, n, id,
             config.vocabulary);
      }
    }
  }
  if (item.answers.empty()) Fail("task '{}', item {}: no answer", set.name, n);
}

}  // namespace

std::vector<TaskBatch> MakeTaskBatches(const TaskSet& set, const ModelConfig& config,
                                       std::int64_t rows, std::int64_t ranks) {
  if (set.items.empty()) Fail("task '{}' has no prompts", set.name);
  for (std::size_t n = 0; n < set.items.size(); ++n) CheckItem(set, n, config);
  std::vector<std::size_t> order(set.items.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const TaskItem &x = set.items[a], &y = set.items[b];
    return std::pair(x.clean.size(), SharedBeginning(x)) <
           std::pair(y.clean.size(), SharedBeginning(y));
  });
  std::vector<TaskBatch> batches;
  for (auto first = order.begin(); first != order.end();) {
    const std::size_t size = set.items[*first].clean.size();
    const auto last = std::find_if(
        first, order.end(), [&](std::size_t n) { return set.items[n].clean.size() != size; });
    const auto length = static_cast<std::int64_t>(size);
    const std::int64_t prompts = last - first, most = std::max<std::int64_t>(1, rows / length);
    const std::int64_t needed = (prompts + most - 1) / most;
    const std::int64_t count = std::min(prompts, (needed + ranks - 1) / ranks * ranks);
    for (std::int64_t i = 0; i < count; ++i) {
      TaskBatch& batch = batches.emplace_back(TaskBatch{.length = length, .shared = length});
      batch.items.assign(first + prompts * i / count, first + prompts * (i + 1) / count);
      for (const std::size_t n : batch.items) {
        const TaskItem& item = set.items[n];
        batch.shared = std::min(batch.shared, SharedBeginning(item));
        batch.clean.insert(batch.clean.end(), item.clean.begin(), item.clean.end());
        batch.corrupted.insert(batch.corrupted.end(), item.corrupted.begin(), item.corrupted.end());
      }
    }
    first = last;
  }
  return batches;
}

}  // namespace clearhead
