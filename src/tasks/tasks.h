// SPDX-License-Identifier: MIT
// Families of prompts with one known behaviour each, with corrupted twins: what circuits are
// searched on, and sentences that teach the behaviour to a small model.
//
//   copy          Say: sea stone fire wood; sea stone            -> fire
//                 twin: the answer's place in the list holds another word, the wrong answer
//   induction     Say: sea stone fire gold wood sea              -> stone
//                 twin: the first `sea` is another word; wrong answer: another word of the list
//   ioi           Then Mary and John went to the shop. John gave a ring to -> Mary
//                 twin: three other names; wrong answer: the name that came twice
//   greater-than  The war lasted from the year 1743 to the year 17 -> 44 .. 99
//                 twin: the first year ends in 01; wrong answers: 00 .. 43
//   opposites     The opposite of "large" is "                   -> small
//                 twin: another word; wrong answer: that word's opposite
//   addition      43+25=                                         -> 68
//                 twin: other numbers; wrong answer: their sum
//   digits        43+25=0                                        -> 6
//                 sums digit by digit, for tokenizers of single characters; twin as above
//
// and, in the words of children's stories (story_tasks.h):
//
//   story-names   One day, Tom and Sam found a ball. Tom picked it up and gave the ball to -> Sam
//                 twin: three other names; wrong answer: the name that came twice
//   story-things  Tom had a red ball and Sam had a blue car. Tom loved the red ball. One day, Sam
//                 wanted to play with the red -> ball
//                 twin: the colours have changed places; wrong answer: the other thing
//   story-verbs   One day, Tom went to the park. The dogs near the tree -> were, are
//                 twin: one dog; wrong answers: was, is. Also the other way round
//   story-quotes  Tom was happy. Tom said, "Mom, I want to play with my ball -> ." or !"
//                 twin: nothing is quoted; wrong answers: . and ! alone
//
// Sentence n of a seed is a pure function of both. Sentences are split by what they ask (names,
// years, numbers), one tenth held out: a model taught with the one part is scored on the other.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace clearhead {

enum class Task {
  kCopy,
  kInduction,
  kIoi,
  kGreaterThan,
  kOpposites,
  kAddition,
  kDigits,
  kStoryNames,
  kStoryThings,
  kStoryVerbs,
  kStoryQuotes
};
enum class TaskPart { kTaught, kHeldOut };

// What a model's next-token distribution after the prompt is judged by.
enum class TaskMetric {
  kLogitDifference,        // logit(answer) - logit(wrong)
  kProbabilityDifference,  // sum P(answers) - sum P(wrongs), of the whole softmax
};

std::string_view ToText(TaskMetric metric);  // "logit difference"

struct TaskInfo {
  Task task;
  std::string_view name;
  TaskMetric metric;
  std::string_view description;  // one line
};

std::span<const TaskInfo> AllTasks();
const TaskInfo& InfoOf(Task task);
// Throws Error with the names there are.
Task ParseTask(std::string_view name);

struct TaskSentence {
  std::string clean, corrupted;              // prompts
  std::vector<std::string> answers, wrongs;  // what may follow the clean one, and what should not
  std::string line;                          // the whole sentence, as running text
};

// Which words may be used, written as they stand in the text (with a leading space inside a
// sentence). Lists of words are filtered by it before prompts are made.
using WordFilter = std::function<bool(std::string_view)>;

// Throws Error if the filter leaves too few words.
TaskSentence MakeTaskSentence(Task task, std::uint64_t seed, std::uint64_t n, TaskPart part,
                              const WordFilter& usable = {});

}  // namespace clearhead
