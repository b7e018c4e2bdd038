// SPDX-License-Identifier: MIT
// A command as its --help describes it, without CLI11: what manual pages and completions are made
// of.
#pragma once

#include <string>
#include <vector>

namespace clearhead::manuals {

struct DescribedOption {
  std::vector<std::string> names;    // "--json"; empty for positional arguments
  std::string argument;              // "MODEL", "INT"; empty for flags
  std::vector<std::string> choices;  // if only these are allowed
  std::string help;
  bool required = false, repeats = false;
};

struct DescribedCommand {
  std::vector<std::string> words;  // {"features", "train"}; empty for the program itself
  std::string description, footer;
  std::vector<DescribedOption> options;
  std::vector<DescribedCommand> commands;
};

// {"clearhead-features-train.1", text} for every command and the program.
struct WrittenPage {
  std::string name, text;
};
std::vector<WrittenPage> ManualPages(const DescribedCommand& program, const std::string& version);

std::string BashCompletion(const DescribedCommand& program);
std::string ZshCompletion(const DescribedCommand& program);
std::string FishCompletion(const DescribedCommand& program);

}  // namespace clearhead::manuals
