// SPDX-License-Identifier: MIT
#include "tasks/story_tasks.h"

#include <fmt/format.h>

#include "tasks/task_choice.h"

namespace clearhead {
namespace {

constexpr std::string_view kNames[] = {"Tom",  "Ben",  "Sam",  "Tim",  "Max",  "Jack", "Anna",
                                       "Mia",  "Sue",  "Amy",  "Jane", "John", "Mary", "Sara",
                                       "Emma", "Lily", "Lucy", "Bob",  "Joe",  "Kate"};
constexpr std::string_view kThings[] = {"ball", "car",  "book", "hat",  "box",  "cup",
                                        "doll", "boat", "bike", "kite", "coat", "cake"};
constexpr std::string_view kColours[] = {"red", "blue", "green", "yellow", "white", "black"};
constexpr std::string_view kPlaces[] = {"park", "house", "tree", "river", "school", "garden"};

// Animals and things, one and many.
struct Noun {
  std::string_view one, many;
};
constexpr Noun kNouns[] = {{"dog", "dogs"},   {"cat", "cats"},       {"bird", "birds"},
                           {"boy", "boys"},   {"girl", "girls"},     {"toy", "toys"},
                           {"car", "cars"},   {"flower", "flowers"}, {"duck", "ducks"},
                           {"book", "books"}, {"tree", "trees"},     {"friend", "friends"}};

std::string_view One(RandomStream& random, const Words& words) {
  return words[random.Below(words.size())];
}

}  // namespace

TaskSentence StoryNames(RandomStream& random, TaskPart part, const WordFilter& usable) {
  const Words names = Usable(kNames, " ", usable, 6, "names");
  const std::string_view thing = One(random, Usable(kThings, " ", usable, 1, "things"));
  std::vector<std::uint64_t> who;
  do {
    who = Choose(random, 5, names.size());
  } while (!InPart(fmt::format("{} {}", names[who[0]], names[who[1]]), part));
  const std::uint64_t form = random.Below(2);
  const bool giver_first = random.Below(2) == 0;
  const auto prompt = [&](std::string_view first, std::string_view second, std::string_view giver) {
    if (form == 0) {
      return fmt::format("{} and {} were playing in the park. {} had a {}. {} gave the {} to",
                         first, second, giver, thing, giver, thing);
    }
    return fmt::format("One day, {} and {} found a {}. {} picked it up and gave the {} to", first,
                       second, thing, giver, thing);
  };
  return WhoGetsIt(names, who, giver_first, prompt);
}

TaskSentence StoryThings(RandomStream& random, TaskPart part, const WordFilter& usable) {
  const Words names = Usable(kNames, " ", usable, 2, "names");
  const Words things = Usable(kThings, " ", usable, 4, "things");
  const Words colours = Usable(kColours, " ", usable, 2, "colours");
  std::vector<std::uint64_t> what;
  do {
    what = Choose(random, 2, things.size());
  } while (!InPart(fmt::format("{} {}", things[what[0]], things[what[1]]), part));
  const std::vector<std::uint64_t> who = Choose(random, 2, names.size());
  const std::vector<std::uint64_t> colour = Choose(random, 2, colours.size());
  const bool asked_first = random.Below(2) == 0;
  // In the twin the colours change places, and the other thing is what is asked for.
  const auto prompt = [&](std::size_t colour_of_asked) {
    const std::string asked =
        fmt::format("{} {}", colours[colour[colour_of_asked]], things[what[0]]);
    const std::string other =
        fmt::format("{} {}", colours[colour[1 - colour_of_asked]], things[what[1]]);
    return fmt::format(
        "{} had a {} and {} had a {}. {} loved the {}. One day, {} wanted to play with the {}",
        names[who[0]], asked_first ? asked : other, names[who[1]], asked_first ? other : asked,
        names[who[asked_first ? 0 : 1]], asked, names[who[asked_first ? 1 : 0]],
        colours[colour[0]]);
  };
  const std::string clean = prompt(0);
  const std::string answer = fmt::format(" {}", things[what[0]]);
  return {clean, prompt(1), {answer}, {fmt::format(" {}", things[what[1]])}, clean + answer + "."};
}

TaskSentence StoryVerbs(RandomStream& random, TaskPart part, const WordFilter& usable) {
  std::vector<Noun> nouns;
  for (const Noun& noun : kNouns) {
    if (usable &&
        !(usable(fmt::format(" {}", noun.one)) && usable(fmt::format(" {}", noun.many)))) {
      continue;
    }
    nouns.push_back(noun);
  }
  const Words names = Usable(kNames, " ", usable, 1, "names");
  const Words places = Usable(kPlaces, " ", usable, 1, "places");
  if (nouns.empty()) Usable({}, " ", usable, 1, "nouns that are one token for one and for many");
  Noun noun;
  std::string_view name, place, past;
  bool many = false;
  do {
    noun = nouns[random.Below(nouns.size())];
    name = One(random, names);
    place = One(random, places);
    past = One(random, places);
    many = random.Below(2) == 0;
  } while (place == past || !InPart(fmt::format("{} {} {} {}", name, noun.one, place, many), part));
  const auto prompt = [&](bool of_many) {
    return fmt::format("One day, {} went to the {}. The {} near the {}", name, place,
                       of_many ? noun.many : noun.one, past);
  };
  TaskSentence sentence{.clean = prompt(many),
                        .corrupted = prompt(!many),
                        .answers = {" were", " are"},
                        .wrongs = {" was", " is"}};
  if (!many) std::swap(sentence.answers, sentence.wrongs);
  sentence.line = sentence.clean + sentence.answers[random.Below(2)] + " nice.";
  return sentence;
}

TaskSentence StoryQuotes(RandomStream& random, TaskPart part, const WordFilter& usable) {
  const Words names = Usable(kNames, " ", usable, 1, "names");
  const Words things = Usable(kThings, " ", usable, 1, "things");
  std::string_view name, thing;
  do {
    name = One(random, names);
    thing = One(random, things);
  } while (!InPart(fmt::format("{} {}", name, thing), part));
  const bool toy = random.Below(2) == 0;
  // The twin says the same without quoting it.
  const auto prompt = [&](std::string_view opening) {
    return fmt::format("{} was happy. {} said,{}Mom, I want to {} my {}", name, name, opening,
                       toy ? "play with" : "look for", thing);
  };
  TaskSentence sentence{.clean = prompt(" \""),
                        .corrupted = prompt(" and "),
                        .answers = {".\"", "!\""},
                        .wrongs = {".", "!"}};
  sentence.line = sentence.clean + sentence.answers[random.Below(2)];
  return sentence;
}

}  // namespace clearhead
