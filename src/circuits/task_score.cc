// SPDX-License-Identifier: MIT
#include "circuits/task_score.h"

#include <algorithm>
#include <cmath>

#include "circuits/task_batches.h"
#include "core/buffer.h"
#include "model/output.h"
#include "model/run.h"
#include "use/generate.h"

namespace clearhead {
namespace {

double Sum(const std::vector<std::int32_t>& ids, const std::function<double(std::int32_t)>& value) {
  double sum = 0.0;
  for (const std::int32_t id : ids) sum += value(id);
  return sum;
}

}  // namespace

double LogitDifference(const TaskItem& item, const std::function<double(std::int32_t id)>& logit) {
  const auto mean = [&](const std::vector<std::int32_t>& ids) {
    return ids.empty() ? 0.0 : Sum(ids, logit) / static_cast<double>(ids.size());
  };
  return mean(item.answers) - mean(item.wrongs);
}

double TaskMetricOf(const TaskItem& item, TaskMetric metric, std::span<const float> logits) {
  const auto logit = [&](std::int32_t id) {
    return static_cast<double>(logits[static_cast<std::size_t>(id)]);
  };
  if (metric == TaskMetric::kLogitDifference) return LogitDifference(item, logit);
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float value : logits) total += std::exp(static_cast<double>(value) - largest);
  const auto probability = [&](std::int32_t id) { return std::exp(logit(id) - largest) / total; };
  return Sum(item.answers, probability) - Sum(item.wrongs, probability);
}

bool IsAnswered(const TaskItem& item, std::span<const float> logits) {
  const auto likeliest =
      static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return std::find(item.answers.begin(), item.answers.end(), likeliest) != item.answers.end();
}

ItemScores ScoreItems(const Model& model, const TaskSet& set, Communicator* ranks) {
  if (set.items.empty()) return {};
  Communicator alone;
  Communicator& all = ranks == nullptr ? alone : *ranks;
  const std::int64_t C = model.config.width, V = model.config.vocabulary;
  const std::vector<TaskBatch> batches =
      MakeTaskBatches(set, model.config, kTaskBatchRows, all.size());
  const std::size_t items = set.items.size();
  std::vector<double> scores(3 * items);  // clean, corrupted, answered; 0 for other ranks' items
  Buffer<float> logits(V);
  for (std::size_t n = 0; n < batches.size(); ++n) {
    if (!all.Owns(n)) continue;
    const TaskBatch& batch = batches[n];
    const Pass pass{.model = model, .batch = batch.size(), .length = batch.length};
    Activations activations(model.config, batch.size(), batch.length, Keep::kNothing, 0);
    for (const bool corrupted : {false, true}) {
      ForwardToFinalNorm(pass, batch.Prompts(corrupted).data(), activations);
      for (std::int64_t b = 0; b < batch.size(); ++b) {
        const std::size_t at = batch.items[static_cast<std::size_t>(b)];
        LogitsForward(pass, 1, activations.ln_f + ((b + 1) * batch.length - 1) * C, logits.data());
        const std::span<const float> row(logits.data(), static_cast<std::size_t>(V));
        scores[(corrupted ? items : 0) + at] = TaskMetricOf(set.items[at], set.metric, row);
        if (!corrupted) scores[2 * items + at] = IsAnswered(set.items[at], row) ? 1.0 : 0.0;
      }
    }
  }
  all.Sum(scores);
  const auto begin = scores.begin(), second = begin + static_cast<std::ptrdiff_t>(items),
             third = second + static_cast<std::ptrdiff_t>(items);
  ItemScores found{.clean = {begin, second}, .corrupted = {second, third}};
  for (auto answered = third; answered != scores.end(); ++answered) {
    found.answered.push_back(*answered > 0.0);
  }
  return found;
}

TaskScore Summarise(const ItemScores& items) {
  const std::size_t count = items.clean.size();
  TaskScore score{.items = static_cast<std::int64_t>(count)};
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(count, 1));
  for (std::size_t i = 0; i < count; ++i) {
    score.clean_metric += share * items.clean[i];
    score.corrupted_metric += share * items.corrupted[i];
    if (items.clean[i] > 0.0) score.preferred += share;
    if (items.answered[i]) score.accuracy += share;
  }
  return score;
}

TaskScore ScoreTask(const Model& model, const TaskSet& set) {
  return Summarise(ScoreItems(model, set));
}

double ExactSums(const Model& model, const Tokenizer& tokenizer, const TaskSetOptions& options) {
  std::int64_t right = 0;
  for (std::int64_t n = 0; n < options.count; ++n) {
    const std::string line =
        MakeTaskSentence(Task::kDigits, options.seed, static_cast<std::uint64_t>(n), options.part)
            .line;
    const std::string asked = line.substr(0, line.find('=') + 1);
    const std::vector<std::int32_t> prompt = tokenizer.EncodePrompt(asked);
    const auto wanted =
        static_cast<std::int64_t>(tokenizer.EncodePrompt(line).size() - prompt.size());
    right += tokenizer.DecodeBytes(Generate(model, prompt, {.max_new = wanted}).ids) == line;
  }
  return static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(options.count, 1));
}

}  // namespace clearhead
