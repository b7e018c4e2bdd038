// SPDX-License-Identifier: MIT
// How tasks choose their words, and which part of a task a question belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "tasks/tasks.h"

namespace clearhead {

using Words = std::vector<std::string_view>;

// One tenth of what can be asked is held out, chosen by the question itself: the same for every
// seed and tokenizer.
bool InPart(std::string_view question, TaskPart part);

// Those words that are usable with `before` in front. Throws Error if they are fewer than `needed`;
// `what` names them.
Words Usable(std::span<const std::string_view> words, std::string_view before,
             const WordFilter& usable, std::size_t needed, std::string_view what);

// `count` different ones, in random order.
std::vector<std::uint64_t> Choose(RandomStream& random, std::size_t count, std::size_t from);

// The name that came only once, of a prompt(first, second, giver). `who` are places in `names`:
// receiver, giver, and three others for the twin.
using GivingPrompt = std::function<std::string(std::string_view first, std::string_view second,
                                               std::string_view giver)>;
TaskSentence WhoGetsIt(const Words& names, std::span<const std::uint64_t> who, bool giver_first,
                       const GivingPrompt& prompt);

}  // namespace clearhead
