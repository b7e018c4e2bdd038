// SPDX-License-Identifier: MIT
// Tasks in the words of children's stories, for models that were trained on nothing else.
#pragma once

#include "core/random.h"
#include "tasks/tasks.h"

namespace clearhead {

TaskSentence StoryNames(RandomStream& random, TaskPart part, const WordFilter& usable);
TaskSentence StoryThings(RandomStream& random, TaskPart part, const WordFilter& usable);
TaskSentence StoryVerbs(RandomStream& random, TaskPart part, const WordFilter& usable);
TaskSentence StoryQuotes(RandomStream& random, TaskPart part, const WordFilter& usable);

}  // namespace clearhead
