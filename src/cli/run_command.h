// SPDX-License-Identifier: MIT
// Commands run from inside the program, as if they were typed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace clearhead::cli {

// The words after "clearhead".
using CommandWords = std::vector<std::string>;

// As a shell wants it: plain, or in single quotes.
std::string ShellWord(std::string_view word);
std::string ShellLine(const CommandWords& words);  // "clearhead tasks ioi --n 3"

// Throws what the command throws. `add` registers at least the command that is asked for.
using AddSome = std::function<void(CLI::App&)>;
void RunCommand(const CommandWords& words, const AddSome& add = AddCommands);
// The same; what it prints on stdout is returned instead.
std::string CaptureCommand(const CommandWords& words, const AddSome& add = AddCommands);

}  // namespace clearhead::cli
