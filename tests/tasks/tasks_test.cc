// SPDX-License-Identifier: MIT
#include "tasks/tasks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "tasks/task_items.h"
#include "tasks/task_words.h"
#include "text/bpe_train.h"
#include "text/test_tokenizer.h"

namespace clearhead {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

bool IsStory(Task task) { return task >= Task::kStoryNames; }

std::string Lines(int count, bool stories = false) {
  std::string text;
  for (const TaskInfo& info : AllTasks()) {
    if (info.task == Task::kDigits) continue;  // its sums would become tokens of three digits
    if (IsStory(info.task) != stories) continue;
    for (int n = 0; n < count; ++n) {
      const TaskSentence sentence =
          MakeTaskSentence(info.task, 1, static_cast<std::uint64_t>(n), TaskPart::kTaught);
      text += sentence.line + '\n';
      if (stories) text += sentence.corrupted + '\n';  // has words of its own
    }
  }
  return text;
}

// Learned from the tasks themselves: names, words and two-digit numbers are tokens; with more of
// them whole years would be.
const Tokenizer& TaskTokenizer() {
  static const Tokenizer tokenizer = [] {
    const std::string text = Lines(3000);
    const std::vector<std::string_view> texts = {text};
    return TrainBpe(texts, {.vocabulary_size = 900});
  }();
  return tokenizer;
}

// The same of children's stories.
const Tokenizer& StoryTokenizer() {
  static const Tokenizer tokenizer = [] {
    const std::string text = Lines(2000, /*stories=*/true);
    const std::vector<std::string_view> texts = {text};
    return TrainBpe(texts, {.vocabulary_size = 500});
  }();
  return tokenizer;
}

Tokenizer Bytes() {
  const std::string text = "a";
  const std::vector<std::string_view> texts = {text};
  return TrainBpe(texts, {.vocabulary_size = 257});
}

std::vector<std::string> Split(std::string_view text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

class EveryTask : public ::testing::TestWithParam<Task> {};

TEST_P(EveryTask, SentencesAreAFunctionOfSeedAndNumber) {
  for (std::uint64_t n = 0; n < 50; ++n) {
    const TaskSentence a = MakeTaskSentence(GetParam(), 7, n, TaskPart::kTaught);
    const TaskSentence b = MakeTaskSentence(GetParam(), 7, n, TaskPart::kTaught);
    EXPECT_EQ(a.clean, b.clean);
    EXPECT_EQ(a.line, b.line);
    EXPECT_FALSE(a.answers.empty());
    EXPECT_FALSE(a.wrongs.empty());
    if (GetParam() != Task::kGreaterThan) {
      EXPECT_NE(a.clean, a.corrupted);  // years: the twin's own year is taught too
    }
    for (const std::string& wrong : a.wrongs) {
      EXPECT_EQ(std::count(a.answers.begin(), a.answers.end(), wrong), 0) << a.clean;
    }
  }
}

TEST_P(EveryTask, TheLineContinuesThePromptWithAnAnswer) {
  if (GetParam() == Task::kOpposites) GTEST_SKIP() << "a third of its lines have other forms";
  for (std::uint64_t n = 0; n < 200; ++n) {
    const TaskSentence s = MakeTaskSentence(GetParam(), 3, n, TaskPart::kHeldOut);
    ASSERT_THAT(s.line, StartsWith(s.clean));
    const std::string rest = s.line.substr(s.clean.size());
    EXPECT_TRUE(std::any_of(s.answers.begin(), s.answers.end(), [&](const std::string& answer) {
      return rest.starts_with(answer);
    })) << s.line;
  }
}

TEST_P(EveryTask, HeldOutQuestionsAreNeverTaught) {
  if (GetParam() == Task::kCopy || GetParam() == Task::kInduction) {
    GTEST_SKIP() << "random lists, practically never the same twice";
  }
  // What is asked, without the frame around it.
  const auto question = [](const TaskSentence& s) {
    std::string key = s.answers.front() + "|" + s.wrongs.front();
    if (s.wrongs.size() > 1) key = s.clean;  // years
    if (s.clean.find('=') != std::string::npos) key = s.clean.substr(0, s.clean.find('='));
    if (s.clean.find('"') != std::string::npos) key = s.clean;
    return key;
  };
  std::set<std::string> taught;
  for (std::uint64_t n = 0; n < 4000; ++n) {
    const TaskSentence s = MakeTaskSentence(GetParam(), 1, n, TaskPart::kTaught);
    // Opposites in another form may name a held-out pair; the prompt itself is never taught.
    if (s.line.starts_with(s.clean)) taught.insert(question(s));
  }
  for (std::uint64_t n = 0; n < 1000; ++n) {
    const TaskSentence s = MakeTaskSentence(GetParam(), 2, n, TaskPart::kHeldOut);
    EXPECT_EQ(taught.count(question(s)), 0u) << s.line;
  }
}

TEST_P(EveryTask, ItemsFitTheTokenizer) {
  const Tokenizer tokenizer = GetParam() == Task::kDigits ? Bytes()
                              : IsStory(GetParam())       ? StoryTokenizer()
                                                          : TaskTokenizer();
  const TaskSet set = MakeTaskSet(GetParam(), tokenizer, {.count = 60, .seed = 5});
  ASSERT_EQ(set.items.size(), 60u);
  for (const TaskItem& item : set.items) {
    EXPECT_EQ(item.clean.size(), item.corrupted.size());
    EXPECT_NE(item.clean, item.corrupted);
    EXPECT_EQ(tokenizer.DecodeBytes(item.clean), item.clean_text);
    EXPECT_EQ(tokenizer.DecodeBytes(item.corrupted), item.corrupted_text);
    for (const std::int32_t id : item.answers) {
      std::vector<std::int32_t> longer = item.clean;
      longer.push_back(id);
      EXPECT_EQ(tokenizer.Encode(tokenizer.DecodeBytes(longer)), longer);
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<Task>& info) {
  std::string name(InfoOf(info.param).name);
  std::erase(name, '-');
  return name;
}

std::vector<Task> Every() {
  std::vector<Task> tasks;
  for (const TaskInfo& info : AllTasks()) tasks.push_back(info.task);
  return tasks;
}

INSTANTIATE_TEST_SUITE_P(Tasks, EveryTask, ::testing::ValuesIn(Every()), NameOf);

TEST(Tasks, NamesAreTheirOwn) {
  for (const TaskInfo& info : AllTasks()) {
    EXPECT_EQ(ParseTask(info.name), info.task);
    EXPECT_EQ(InfoOf(info.task).name, info.name);
  }
  EXPECT_THAT([] { ParseTask("juggling"); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("juggling"), HasSubstr("ioi"))));
}

TEST(Tasks, CopyAsksForTheWordAtTheSamePlace) {
  for (std::uint64_t n = 0; n < 100; ++n) {
    const TaskSentence s = MakeTaskSentence(Task::kCopy, 1, n, TaskPart::kHeldOut);
    const std::vector<std::string> halves = Split(s.clean, ';');
    ASSERT_EQ(halves.size(), 2u);
    const std::vector<std::string> first = Split(halves[0], ' '), second = Split(halves[1], ' ');
    ASSERT_LT(second.size(), first.size());
    EXPECT_EQ(" " + first[second.size()], s.answers[0]);
    const std::vector<std::string> twin = Split(Split(s.corrupted, ';')[0], ' ');
    EXPECT_EQ(" " + twin[second.size()], s.wrongs[0]);
  }
}

TEST(Tasks, StoriesAskWhatTheTwinDoesNotTell) {
  for (std::uint64_t n = 0; n < 100; ++n) {
    const TaskSentence things = MakeTaskSentence(Task::kStoryThings, 1, n, TaskPart::kTaught);
    const std::string colour = things.clean.substr(things.clean.rfind(' '));
    EXPECT_THAT(things.clean, HasSubstr(colour + things.answers[0])) << things.clean;
    EXPECT_EQ(things.corrupted.find(colour + things.answers[0]), std::string::npos);
    const TaskSentence names = MakeTaskSentence(Task::kStoryNames, 1, n, TaskPart::kTaught);
    EXPECT_THAT(names.clean, HasSubstr(names.answers[0].substr(1)));
    EXPECT_EQ(names.corrupted.find(names.answers[0]), std::string::npos) << names.corrupted;
    const TaskSentence verbs = MakeTaskSentence(Task::kStoryVerbs, 1, n, TaskPart::kTaught);
    EXPECT_EQ(verbs.clean.size() < verbs.corrupted.size(), verbs.answers[0] == " was");
    const TaskSentence quotes = MakeTaskSentence(Task::kStoryQuotes, 1, n, TaskPart::kTaught);
    EXPECT_EQ(std::count(quotes.clean.begin(), quotes.clean.end(), '"'), 1);
    EXPECT_EQ(std::count(quotes.corrupted.begin(), quotes.corrupted.end(), '"'), 0);
  }
}

TEST(Tasks, SumsAreRight) {
  for (std::uint64_t n = 0; n < 300; ++n) {
    for (const Task task : {Task::kAddition, Task::kDigits}) {
      const TaskSentence s = MakeTaskSentence(task, 1, n, TaskPart::kTaught);
      const std::size_t plus = s.line.find('+'), equals = s.line.find('=');
      EXPECT_EQ(std::stoi(s.line.substr(0, plus)) + std::stoi(s.line.substr(plus + 1)),
                std::stoi(s.line.substr(equals + 1)))
          << s.line;
    }
  }
}

TEST(Tasks, IoiGivesToTheOther) {
  for (std::uint64_t n = 0; n < 200; ++n) {
    const TaskSentence s = MakeTaskSentence(Task::kIoi, 4, n, TaskPart::kTaught);
    std::map<std::string, int> times;
    for (const std::string_view name : TaskNames()) {
      for (const std::string& word : Split(s.clean, ' ')) {
        if (word == name) ++times[" " + std::string(name)];
      }
    }
    EXPECT_EQ(times[s.answers[0]], 1) << s.clean;
    EXPECT_EQ(times[s.wrongs[0]], 2) << s.clean;
    for (const std::string& name : {s.answers[0], s.wrongs[0]}) {
      EXPECT_EQ(s.corrupted.find(name + " "), std::string::npos) << s.corrupted;
    }
  }
}

TEST(Tasks, ATokenizerThatCannotIsToldSo) {
  const Tokenizer bytes = Bytes();
  for (const Task task : {Task::kCopy, Task::kIoi, Task::kOpposites}) {
    EXPECT_THAT([&] { MakeTaskSet(task, bytes, {}); },
                ThrowsMessage<Error>(HasSubstr("single tokens")));
  }
  EXPECT_THAT([&] { MakeTaskSet(Task::kAddition, bytes, {}); },
              ThrowsMessage<Error>(HasSubstr("never single tokens")));
}

TEST(TaskCsv, ReadsWhatItWrites) {
  const TemporaryFolder folder;
  for (const Task task : {Task::kIoi, Task::kGreaterThan, Task::kOpposites}) {
    const TaskSet set = MakeTaskSet(task, TaskTokenizer(), {.count = 20});
    WriteTaskCsv(set, folder.path() / "items.csv");
    const TaskSet read = ReadTaskCsv(folder.path() / "items.csv", TaskTokenizer(), set.metric);
    ASSERT_EQ(read.items.size(), set.items.size());
    for (std::size_t i = 0; i < set.items.size(); ++i) {
      EXPECT_EQ(read.items[i].clean_text, set.items[i].clean_text);
      EXPECT_EQ(read.items[i].corrupted, set.items[i].corrupted);
      EXPECT_EQ(read.items[i].answers, set.items[i].answers);
      EXPECT_EQ(read.items[i].wrongs, set.items[i].wrongs);
    }
  }
}

TEST(TaskCsv, RefusesWithThePlace) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "bad.csv";
  const std::pair<std::string, std::string> cases[] = {
      {"", "empty"},
      {"clean,wrong\na,b\n", "no column 'corrupted'"},
      {"clean,corrupted,correct_idx\na,b,1\n", "no column 'incorrect_idx'"},
      {"clean,corrupted,correct_idx,incorrect_idx\n", "no prompts"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,1\n", "line 2: 3 fields, the header has 4"},
      {"clean,corrupted,correct_idx,incorrect_idx\n,,1,2\n", "line 2: an empty prompt"},
      {"clean,corrupted,correct_idx,incorrect_idx\n\na,bcd qx,1,2\n",
       "line 3: the clean prompt has 1"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,99999,2\n", "token 99999 is outside"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,-1,2\n", "token -1 is outside"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,Mary,2\n", "'Mary' is not a token id"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,,2\n", "no correct_idx"},
      {"clean,corrupted,correct_idx,incorrect_idx\na,b,1,[]\n", "no incorrect_idx"},
      {"clean,corrupted,correct_idx,incorrect_idx\n\"a,b,1,2\n", "never closed"},
  };
  for (const auto& [text, message] : cases) {
    WriteFile(file, text);
    EXPECT_THAT([&] { ReadTaskCsv(file, TaskTokenizer()); },
                ThrowsMessage<Error>(HasSubstr(message)))
        << text;
  }
}

TEST(TaskCsv, QuotedFieldsAndOtherColumns) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "q.csv";
  WriteFile(file,
            "extra,clean,corrupted,incorrect_idx,correct_idx\r\n"
            "x,\"a, \"\"b\"\"\",\"b, \"\"a\"\"\",\"[1, 2]\",3\r\n");
  const TaskSet set = ReadTaskCsv(file, TaskTokenizer());
  ASSERT_EQ(set.items.size(), 1u);
  EXPECT_EQ(set.items[0].clean_text, "a, \"b\"");
  EXPECT_EQ(set.items[0].answers, std::vector<std::int32_t>{3});
  EXPECT_EQ(set.items[0].wrongs, (std::vector<std::int32_t>{1, 2}));
}

}  // namespace
}  // namespace clearhead
