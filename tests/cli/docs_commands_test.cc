// SPDX-License-Identifier: MIT
// The commands in README.md and docs/*.md: that each is one, and has every option that is named.
#include "cli/docs_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace clearhead {
namespace {

namespace fs = std::filesystem;

// "eval", or both words of a command in a group: "features eval".
std::string CommandIn(const std::vector<std::string>& words) {
  return words[1] == "features" && words.size() > 2 ? words[1] + " " + words[2] : words[1];
}

// The options that `clearhead COMMAND --help` lists, each at the beginning of its line; none if
// there is no such command (then --help shows that of the whole program).
std::set<std::string> OptionsOf(const std::string& command) {
  std::vector<std::string> words = Words(command);
  words.emplace_back("--help");
  const ProgramRun run = RunProgram(words);
  if (run.out.find("Usage: clearhead " + command + " ") == std::string::npos) return {};
  std::set<std::string> options;
  std::istringstream lines(run.out);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || line[first] != '-') continue;
    const std::size_t dashes = line.find("--", first);
    if (dashes == std::string::npos) continue;
    options.insert(line.substr(dashes, line.find_first_of(" ,:", dashes) - dashes));
  }
  return options;
}

TEST(DocsCommands, AreUnderstood) {
  const fs::path root = fs::path(CLEARHEAD_TEST_DATA) / ".." / "..";
  std::vector<fs::path> pages = {root / "README.md"};
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  std::map<std::string, std::set<std::string>> options;
  int checked = 0;
  for (const fs::path& page : pages) {
    for (const std::string& line : CommandsOf(page)) {
      SCOPED_TRACE(page.filename().string() + ":" + line);
      const std::vector<std::string> words = Words(line);
      ASSERT_GE(words.size(), 2u);
      const std::string command = CommandIn(words);
      if (!options.contains(command)) options[command] = OptionsOf(command);
      EXPECT_FALSE(options[command].empty()) << "no such command: " << command;
      for (const std::string& word : words) {
        if (!word.starts_with("--")) continue;
        EXPECT_THAT(options[command], testing::Contains(word.substr(0, word.find('='))));
      }
      ++checked;
    }
  }
  EXPECT_GE(checked, 25);
  EXPECT_GE(options.size(), 10u);
}

TEST(DocsCommands, AreTakenApartAsAShellDoes) {
  EXPECT_THAT(Words("    clearhead grid a  --prompt 'is \"' --out=x.svg   # --not this"),
              testing::ElementsAre("clearhead", "grid", "a", "--prompt", "is \"", "--out=x.svg"));
  EXPECT_TRUE(OptionsOf("juggle").empty());
  EXPECT_FALSE(OptionsOf("eval").contains("--juggle"));
}

}  // namespace
}  // namespace clearhead
