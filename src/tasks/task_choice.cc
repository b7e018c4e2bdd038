// SPDX-License-Identifier: MIT
#include "tasks/task_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace clearhead {

bool InPart(std::string_view question, TaskPart part) {
  std::uint64_t hash = 0;
  for (const char letter : question) {
    hash = HashCoordinates(hash, {static_cast<std::uint64_t>(static_cast<unsigned char>(letter))});
  }
  return (hash % 10 == 0) == (part == TaskPart::kHeldOut);
}

Words Usable(std::span<const std::string_view> words, std::string_view before,
             const WordFilter& usable, std::size_t needed, std::string_view what) {
  Words kept;
  for (const std::string_view word : words) {
    if (!usable || usable(fmt::format("{}{}", before, word))) kept.push_back(word);
  }
  if (kept.size() < needed) {
    Fail(
        "the tokenizer has single tokens for only {} of {} {}, the task needs {}; use a model with "
        "a larger vocabulary or another task",
        kept.size(), words.size(), what, needed);
  }
  return kept;
}

std::vector<std::uint64_t> Choose(RandomStream& random, std::size_t count, std::size_t from) {
  std::vector<std::uint64_t> chosen;
  while (chosen.size() < count) {
    const std::uint64_t next = random.Below(from);
    if (std::find(chosen.begin(), chosen.end(), next) == chosen.end()) chosen.push_back(next);
  }
  return chosen;
}

TaskSentence WhoGetsIt(const Words& names, std::span<const std::uint64_t> who, bool giver_first,
                       const GivingPrompt& prompt) {
  const std::string_view receiver = names[who[0]], giver = names[who[1]];
  const std::string clean =
      giver_first ? prompt(giver, receiver, giver) : prompt(receiver, giver, giver);
  const std::string answer = fmt::format(" {}", receiver);
  return {clean,
          prompt(names[who[2]], names[who[3]], names[who[4]]),
          {answer},
          {fmt::format(" {}", giver)},
          clean + answer + "."};
}

}  // namespace clearhead
