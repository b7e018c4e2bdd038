// SPDX-License-Identifier: MIT
// How well a model does a task.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "model/model.h"
#include "tasks/task_items.h"

namespace clearhead {

// Mean logit of the answers minus mean logit of the wrong ones; a side without tokens counts 0.
double LogitDifference(const TaskItem& item, const std::function<double(std::int32_t id)>& logit);

// Judges one row of logits [V] after a prompt (TaskMetric says how).
double TaskMetricOf(const TaskItem& item, TaskMetric metric, std::span<const float> logits);

// Whether the likeliest of all tokens is an answer.
bool IsAnswered(const TaskItem& item, std::span<const float> logits);

struct TaskScore {
  std::int64_t items = 0;
  double accuracy = 0.0;          // share of items whose likeliest next token is an answer
  double preferred = 0.0;         // share of items with a metric above 0
  double clean_metric = 0.0;      // mean over items
  double corrupted_metric = 0.0;  // the same answers after the corrupted prompts
};

// Every item's score, by its number.
struct ItemScores {
  std::vector<double> clean, corrupted;  // metrics
  std::vector<bool> answered;            // whether the likeliest next token is an answer
};
// Ranks share the prompts out, and all get all scores; null: one alone.
ItemScores ScoreItems(const Model& model, const TaskSet& set, Communicator* ranks = nullptr);

TaskScore Summarise(const ItemScores& items);
TaskScore ScoreTask(const Model& model, const TaskSet& set);

// Share of `count` sums of Task::kDigits that greedy decoding ends rightly, all digits of them.
double ExactSums(const Model& model, const Tokenizer& tokenizer, const TaskSetOptions& options);

}  // namespace clearhead
