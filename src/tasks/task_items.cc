// SPDX-License-Identifier: MIT
#include "tasks/task_items.h"

#include <algorithm>

#include "core/error.h"

namespace clearhead {
namespace {

// The ids of those `texts` that are single tokens after `prompt`.
std::vector<std::int32_t> Continuations(const Tokenizer& tokenizer, const std::string& prompt,
                                        const std::vector<std::int32_t>& ids,
                                        const std::vector<std::string>& texts) {
  std::vector<std::int32_t> found;
  for (const std::string& text : texts) {
    const std::vector<std::int32_t> longer = tokenizer.EncodePrompt(prompt + text);
    if (longer.size() != ids.size() + 1 || !std::equal(ids.begin(), ids.end(), longer.begin())) {
      continue;
    }
    found.push_back(longer.back());
  }
  return found;
}

}  // namespace

TaskSet MakeTaskSet(Task task, const Tokenizer& tokenizer, const TaskSetOptions& options) {
  TaskSet set{.name = std::string(InfoOf(task).name), .metric = InfoOf(task).metric};
  const WordFilter single = [&](std::string_view word) {
    return tokenizer.EncodeContinuation(word).size() == 1;
  };
  for (std::uint64_t n = 0; static_cast<std::int64_t>(set.items.size()) < options.count; ++n) {
    TaskSentence sentence = MakeTaskSentence(task, options.seed, n, options.part, single);
    TaskItem item{.clean = tokenizer.EncodePrompt(sentence.clean),
                  .corrupted = tokenizer.EncodePrompt(sentence.corrupted)};
    item.answers = Continuations(tokenizer, sentence.clean, item.clean, sentence.answers);
    item.wrongs = Continuations(tokenizer, sentence.clean, item.clean, sentence.wrongs);
    // An answer that cannot be said would count as a failure; a wrong one that cannot be said (00
    // in a small vocabulary) only makes no mistake.
    if (item.answers.size() != sentence.answers.size() || item.wrongs.empty() ||
        item.clean.size() != item.corrupted.size() || item.clean == item.corrupted) {
      ++set.skipped;
      if (set.items.empty() && set.skipped == 1000) {
        Fail(
            "task '{}' does not fit the tokenizer: in 1000 prompts such as '{}' the answers ('{}') "
            "were never single tokens, or the twin ('{}') had another length",
            set.name, sentence.clean, sentence.answers.front(), sentence.corrupted);
      }
      continue;
    }
    item.clean_text = std::move(sentence.clean);
    item.corrupted_text = std::move(sentence.corrupted);
    set.items.push_back(std::move(item));
  }
  return set;
}

}  // namespace clearhead
