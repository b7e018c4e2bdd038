// SPDX-License-Identifier: MIT
#include "cli/run_command.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "core/error.h"
#include "core/host.h"

namespace clearhead::cli {

std::string ShellWord(std::string_view word) {
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+%@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellLine(const CommandWords& words) {
  std::string line = "clearhead";
  for (const std::string& word : words) line += " " + ShellWord(word);
  return line;
}

void RunCommand(const CommandWords& words, const AddSome& add) {
  CLI::App app;
  add(app);
  try {
    // The library takes words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    Check(false, fmt::format("'{}': {}", ShellLine(words), error.what()));
  }
}

std::string CaptureCommand(const CommandWords& words, const AddSome& add) {
  std::string text;
  Host host = CurrentHost() != nullptr ? *CurrentHost() : Host{};
  host.print = [&](std::string_view part) { text += part; };
  const HostScope scope(&host);
  RunCommand(words, add);
  return text;
}

}  // namespace clearhead::cli
