// SPDX-License-Identifier: MIT
#include "circuits/task_score.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "model/output.h"
#include "model/run.h"
#include "use/generate.h"

namespace clearhead {
namespace {

constexpr std::int64_t kBatch = 64;

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

std::vector<float> LastLogits(const Model& model, const TaskSet& set, bool corrupted) {
  const std::int64_t C = model.config.width, V = model.config.vocabulary;
  std::map<std::size_t, std::vector<std::size_t>> by_length;  // batches need one length
  for (std::size_t i = 0; i < set.items.size(); ++i) {
    by_length[set.items[i].clean.size()].push_back(i);
  }
  std::vector<float> all(set.items.size() * static_cast<std::size_t>(V));
  for (const auto& [size, items] : by_length) {
    const auto length = static_cast<std::int64_t>(size);
    const auto most = std::min<std::int64_t>(kBatch, static_cast<std::int64_t>(items.size()));
    for (std::size_t first = 0; first < items.size(); first += static_cast<std::size_t>(most)) {
      const auto batch = std::min(most, static_cast<std::int64_t>(items.size() - first));
      std::vector<std::int32_t> ids;
      for (std::int64_t b = 0; b < batch; ++b) {
        const TaskItem& item = set.items[items[first + static_cast<std::size_t>(b)]];
        const std::vector<std::int32_t>& prompt = corrupted ? item.corrupted : item.clean;
        ids.insert(ids.end(), prompt.begin(), prompt.end());
      }
      CheckTokens(model.config, ids, batch, length);
      const Pass pass{.model = model, .batch = batch, .length = length};
      Activations activations(model.config, batch, length, Keep::kNothing, 0);
      ForwardToFinalNorm(pass, ids.data(), activations);
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::size_t item = items[first + static_cast<std::size_t>(b)];
        LogitsForward(pass, 1, activations.ln_f + (b * length + length - 1) * C,
                      all.data() + item * static_cast<std::size_t>(V));
      }
    }
  }
  return all;
}

TaskScore ScoreTask(const Model& model, const TaskSet& set) {
  const auto V = static_cast<std::size_t>(model.config.vocabulary);
  const std::vector<float> clean = LastLogits(model, set, false);
  const std::vector<float> corrupted = LastLogits(model, set, true);
  TaskScore score{.items = static_cast<std::int64_t>(set.items.size())};
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(set.items.size(), 1));
  for (std::size_t i = 0; i < set.items.size(); ++i) {
    const TaskItem& item = set.items[i];
    const std::span<const float> logits(clean.data() + i * V, V);
    const double metric = TaskMetricOf(item, set.metric, logits);
    score.clean_metric += share * metric;
    score.corrupted_metric += share * TaskMetricOf(item, set.metric, {corrupted.data() + i * V, V});
    if (metric > 0.0) score.preferred += share;
    if (IsAnswered(item, logits)) score.accuracy += share;
  }
  return score;
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
