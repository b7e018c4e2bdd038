// SPDX-License-Identifier: MIT
// The commands that a page of the documentation shows.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "core/file.h"

namespace clearhead {

// A command line as a shell splits it: quotes, and a comment at the end.
inline std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // a word
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ') {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else if (c == '#' && !inside) {
      break;
    } else {
      word += c;
      inside = true;
    }
  }
  if (inside) words.push_back(word);
  return words;
}

// Lines of the page that are a command: indented by four, beginning with the program's name. A
// backslash at the end goes on in the next line.
inline std::vector<std::string> CommandsOf(const std::filesystem::path& page) {
  std::vector<std::string> commands;
  std::istringstream lines(ReadFile(page));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    clearhead ")) continue;
    std::string command = line;
    while (command.ends_with("\\") && std::getline(lines, line)) {
      command.pop_back();
      command += line;
    }
    commands.push_back(command);
  }
  return commands;
}

}  // namespace clearhead
