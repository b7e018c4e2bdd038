// SPDX-License-Identifier: MIT
#include "tasks/tasks.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "tasks/story_tasks.h"
#include "tasks/task_choice.h"
#include "tasks/task_words.h"

namespace clearhead {
namespace {

constexpr TaskInfo kTasks[] = {
    {Task::kCopy, "copy", TaskMetric::kLogitDifference, "a list of words said again"},
    {Task::kInduction, "induction", TaskMetric::kLogitDifference,
     "the word that followed the last time"},
    {Task::kIoi, "ioi", TaskMetric::kLogitDifference, "who gets it: the name that came only once"},
    {Task::kGreaterThan, "greater-than", TaskMetric::kProbabilityDifference,
     "a year later than the first"},
    {Task::kOpposites, "opposites", TaskMetric::kLogitDifference, "the opposite of a word"},
    {Task::kAddition, "addition", TaskMetric::kLogitDifference, "two-digit sums below 100"},
    {Task::kDigits, "digits", TaskMetric::kLogitDifference,
     "sums of three digits, one digit of the answer at a time"},
    {Task::kStoryNames, "story-names", TaskMetric::kLogitDifference,
     "who gets it, in a children's story"},
    {Task::kStoryThings, "story-things", TaskMetric::kLogitDifference,
     "the thing that had this colour"},
    {Task::kStoryVerbs, "story-verbs", TaskMetric::kProbabilityDifference,
     "was or were, after one or many"},
    {Task::kStoryQuotes, "story-quotes", TaskMetric::kProbabilityDifference,
     "what was opened is closed"},
};

constexpr int kListLength = 8;

std::string Spaced(const Words& words, std::size_t first, std::size_t last) {
  std::string text;
  for (std::size_t i = first; i < last; ++i) (text += ' ') += words[i];
  return text;
}

struct WordList {
  Words words;             // kListLength different ones
  std::string_view other;  // and one that is not among them
};

WordList ChooseList(RandomStream& random, const WordFilter& usable) {
  const Words nouns = Usable(TaskNouns(), " ", usable, kListLength + 1, "words for lists");
  WordList list;
  for (const std::uint64_t i : Choose(random, kListLength + 1, nouns.size())) {
    list.words.push_back(nouns[i]);
  }
  list.other = list.words.back();
  list.words.pop_back();
  return list;
}

TaskSentence Copy(RandomStream& random, const WordFilter& usable) {
  const auto [list, other] = ChooseList(random, usable);
  // The first word of the second round cannot be known to be asked for: it is told.
  const std::size_t asked = 1 + random.Below(kListLength - 1);
  Words twin = list;
  twin[asked] = other;
  const std::string round = fmt::format(";{}", Spaced(list, 0, asked));
  const std::string all = Spaced(list, 0, kListLength);
  return {"Say:" + all + round,
          "Say:" + Spaced(twin, 0, kListLength) + round,
          {fmt::format(" {}", list[asked])},
          {fmt::format(" {}", other)},
          "Say:" + all + ";" + all + "."};
}

TaskSentence Induction(RandomStream& random, const WordFilter& usable) {
  const auto [list, other] = ChooseList(random, usable);
  // The asked pair starts at `first`; the wrong answer is another word of the list.
  const std::size_t first = random.Below(kListLength - 2);
  std::size_t wrong = random.Below(kListLength - 2);
  while (wrong == first || wrong == first + 1) wrong = (wrong + 1) % kListLength;
  Words twin = list;
  twin[first] = other;
  const std::string end = fmt::format(" {}", list[first]);
  const std::string clean = "Say:" + Spaced(list, 0, kListLength) + end;
  const std::string answer = fmt::format(" {}", list[first + 1]);
  return {clean,
          "Say:" + Spaced(twin, 0, kListLength) + end,
          {answer},
          {fmt::format(" {}", list[wrong])},
          clean + answer + "."};
}

TaskSentence Ioi(RandomStream& random, TaskPart part, const WordFilter& usable) {
  const Words names = Usable(TaskNames(), " ", usable, 12, "names");
  const Words objects = Usable(TaskObjects(), " ", usable, 1, "objects");
  const Words places = Usable(TaskPlaces(), " ", usable, 1, "places");
  std::vector<std::uint64_t> who;
  do {
    who = Choose(random, 5, names.size());
  } while (!InPart(fmt::format("{} {}", names[who[0]], names[who[1]]), part));
  const std::string_view object = objects[random.Below(objects.size())];
  const std::string_view place = places[random.Below(places.size())];
  const std::uint64_t form = random.Below(3);
  const bool giver_first = random.Below(2) == 0;
  const auto prompt = [&](std::string_view first, std::string_view second, std::string_view giver) {
    if (form == 0) {
      return fmt::format("Then {} and {} went to the {}. {} gave a {} to", first, second, place,
                         giver, object);
    }
    if (form == 1) {
      return fmt::format("When {} and {} came to the {}, {} gave a {} to", first, second, place,
                         giver, object);
    }
    return fmt::format("Then {} and {} found a {} at the {}. {} gave it to", first, second, object,
                       place, giver);
  };
  return WhoGetsIt(names, who, giver_first, prompt);
}

TaskSentence GreaterThan(RandomStream& random, TaskPart part, const WordFilter& usable) {
  const Words events = Usable(TaskEvents(), " ", usable, 1, "events");
  std::uint64_t event = 0, century = 0, year = 0;
  do {
    event = random.Below(events.size());
    century = 11 + random.Below(8);
    // 02 .. 98: both sides have answers, and the twin's 01 is less. Taught sentences start there
    // too, often enough that a vocabulary learned from them has a token for it.
    const bool as_twin = part == TaskPart::kTaught && random.Below(16) == 0;
    year = as_twin ? 1 : 2 + random.Below(97);
  } while (!InPart(fmt::format("{} {}{:02}", events[event], century, year), part));
  const auto prompt = [&](std::uint64_t from) {
    return fmt::format("The {} lasted from the year {}{:02} to the year {}", events[event], century,
                       from, century);
  };
  TaskSentence sentence{.clean = prompt(year), .corrupted = prompt(1)};
  for (std::uint64_t end = 0; end < 100; ++end) {
    (end > year ? sentence.answers : sentence.wrongs).push_back(fmt::format("{:02}", end));
  }
  sentence.line = sentence.clean + sentence.answers[random.Below(sentence.answers.size())] + ".";
  return sentence;
}

TaskSentence Opposites(RandomStream& random, TaskPart part, const WordFilter& usable) {
  // Both directions of every pair whose words are usable.
  std::vector<OppositePair> pairs;
  for (const OppositePair& pair : TaskOpposites()) {
    if (usable && !(usable(pair.word) && usable(pair.opposite))) continue;
    pairs.push_back(pair);
    pairs.push_back({pair.opposite, pair.word});
  }
  if (pairs.size() < 4) {
    Fail("the tokenizer has single tokens for only {} pairs of opposites, the task needs 2",
         pairs.size() / 2);
  }
  // The held-out direction of a pair is taught only in the other forms of the sentence.
  if (std::none_of(pairs.begin(), pairs.end(),
                   [&](const OppositePair& pair) { return InPart(pair.word, part); })) {
    Fail("none of the {} usable pairs of opposites belongs to the part of the task asked for",
         pairs.size() / 2);
  }
  const bool other_form = part == TaskPart::kTaught && random.Below(3) == 0;
  OppositePair pair;
  do {
    pair = pairs[random.Below(pairs.size())];
  } while (!other_form && !InPart(pair.word, part));
  OppositePair twin;
  do {
    twin = pairs[random.Below(pairs.size())];
  } while (twin.word == pair.word || twin.word == pair.opposite);
  const auto prompt = [](std::string_view word) {
    return fmt::format("The opposite of \"{}\" is \"", word);
  };
  TaskSentence sentence{.clean = prompt(pair.word),
                        .corrupted = prompt(twin.word),
                        .answers = {std::string(pair.opposite)},
                        .wrongs = {std::string(twin.opposite)}};
  sentence.line = sentence.clean + std::string(pair.opposite) + "\".";
  if (other_form) {
    sentence.line = random.Below(2) == 0
                        ? fmt::format("\"{}\" and \"{}\" are opposites.", pair.word, pair.opposite)
                        : fmt::format("Not \"{}\" but \"{}\".", pair.opposite, pair.word);
  }
  return sentence;
}

TaskSentence Addition(RandomStream& random, TaskPart part) {
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  do {
    a = 10 + random.Below(80);
    b = 10 + random.Below(90 - a);
  } while (!InPart(fmt::format("{}+{}", a, b), part));
  do {
    c = 10 + random.Below(80);
    d = 10 + random.Below(90 - c);
  } while (c + d == a + b);
  const std::string clean = fmt::format("{}+{}=", a, b), answer = fmt::format("{}", a + b);
  return {clean, fmt::format("{}+{}=", c, d), {answer}, {fmt::format("{}", c + d)}, clean + answer};
}

TaskSentence Digits(RandomStream& random, TaskPart part) {
  const auto digits = [](std::uint64_t sum) { return fmt::format("{:03}", sum); };
  std::uint64_t a = 0, b = 0, c = 0, d = 0;
  do {
    a = random.Below(100);
    b = random.Below(100);
  } while (!InPart(fmt::format("{:02}+{:02}", a, b), part));
  const std::size_t asked = random.Below(3);
  // Twins share the digits that are told, and differ in the one that is asked for.
  do {
    c = random.Below(100);
    d = random.Below(100);
  } while (digits(c + d).substr(0, asked) != digits(a + b).substr(0, asked) ||
           digits(c + d)[asked] == digits(a + b)[asked]);
  const std::string told = digits(a + b).substr(0, asked);
  return {fmt::format("{:02}+{:02}={}", a, b, told),
          fmt::format("{:02}+{:02}={}", c, d, told),
          {digits(a + b).substr(asked, 1)},
          {digits(c + d).substr(asked, 1)},
          fmt::format("{:02}+{:02}={}", a, b, digits(a + b))};
}

}  // namespace

std::span<const TaskInfo> AllTasks() { return kTasks; }

std::string_view ToText(TaskMetric metric) {
  return metric == TaskMetric::kLogitDifference ? "logit difference" : "probability difference";
}

const TaskInfo& InfoOf(Task task) { return kTasks[static_cast<std::size_t>(task)]; }

Task ParseTask(std::string_view name) {
  std::string names;
  for (const TaskInfo& info : kTasks) {
    if (info.name == name) return info.task;
    (names += names.empty() ? "" : ", ") += info.name;
  }
  Fail("there is no task '{}'; tasks are {}", name, names);
}

TaskSentence MakeTaskSentence(Task task, std::uint64_t seed, std::uint64_t n, TaskPart part,
                              const WordFilter& usable) {
  RandomStream random(HashCoordinates(
      seed, {static_cast<std::uint64_t>(task), n, static_cast<std::uint64_t>(part)}));
  switch (task) {
    case Task::kCopy:
      return Copy(random, usable);
    case Task::kInduction:
      return Induction(random, usable);
    case Task::kIoi:
      return Ioi(random, part, usable);
    case Task::kGreaterThan:
      return GreaterThan(random, part, usable);
    case Task::kOpposites:
      return Opposites(random, part, usable);
    case Task::kAddition:
      return Addition(random, part);
    case Task::kDigits:
      return Digits(random, part);
    case Task::kStoryNames:
      return StoryNames(random, part, usable);
    case Task::kStoryThings:
      return StoryThings(random, part, usable);
    case Task::kStoryVerbs:
      return StoryVerbs(random, part, usable);
    case Task::kStoryQuotes:
      return StoryQuotes(random, part, usable);
  }
  Fail("unknown task");
}

}  // namespace clearhead
