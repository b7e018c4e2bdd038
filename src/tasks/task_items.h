// SPDX-License-Identifier: MIT
// Task prompts as tokens, for one tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tasks/tasks.h"
#include "text/tokenizer.h"

namespace clearhead {

struct TaskItem {
  std::string clean_text, corrupted_text;
  std::vector<std::int32_t> clean, corrupted;  // one length
  std::vector<std::int32_t> answers, wrongs;   // tokens that may follow the clean prompt, or not
};

struct TaskSet {
  std::string name;
  TaskMetric metric = TaskMetric::kLogitDifference;
  std::vector<TaskItem> items;
  std::int64_t skipped = 0;  // answers that are not one token, twins of different lengths
};

struct TaskSetOptions {
  std::int64_t count = 100;
  std::uint64_t seed = 0;
  TaskPart part = TaskPart::kHeldOut;
};

// Throws Error if the tokenizer cannot express the task.
TaskSet MakeTaskSet(Task task, const Tokenizer& tokenizer, const TaskSetOptions& options);

// CSV with a header in EAP-IG's columns: clean, corrupted, correct_idx, incorrect_idx. An index is
// a token id, or a list of them: "[11, 12]". Other columns are ignored; incorrect_idx may be absent
// only for probability metrics, where nothing is then subtracted.
void WriteTaskCsv(const TaskSet& set, const std::filesystem::path& path);
// Throws Error naming the line: a missing column, an id outside the vocabulary, twins of different
// lengths, an empty prompt.
TaskSet ReadTaskCsv(const std::filesystem::path& path, const Tokenizer& tokenizer,
                    TaskMetric metric = TaskMetric::kLogitDifference);

}  // namespace clearhead
