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
                                       std::int64_t rows) {
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
  for (const std::size_t n : order) {
    const TaskItem& item = set.items[n];
    const auto length = static_cast<std::int64_t>(item.clean.size());
    if (batches.empty() || batches.back().length != length ||
        (batches.back().size() + 1) * length > rows) {
      batches.push_back({.length = length, .shared = SharedBeginning(item)});
    }
    TaskBatch& batch = batches.back();
    batch.items.push_back(n);
    batch.shared = std::min(batch.shared, SharedBeginning(item));
    batch.clean.insert(batch.clean.end(), item.clean.begin(), item.clean.end());
    batch.corrupted.insert(batch.corrupted.end(), item.corrupted.begin(), item.corrupted.end());
  }
  return batches;
}

}  // namespace clearhead
