// SPDX-License-Identifier: MIT
// The whole program as one call: what main() does, and what the library offers to code.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"

namespace clearhead::cli {

// Every command with its options, for those who parse or describe them.
std::shared_ptr<CLI::App> MakeProgram();

// `words` come after "clearhead". --help and --version print like any command. Throws UsageError
// for words that are not understood, Interrupted after a clean stop, and what the command throws.
void RunProgram(const std::vector<std::string>& words);

}  // namespace clearhead::cli
