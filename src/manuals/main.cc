// SPDX-License-Identifier: MIT
// clearhead_manual FOLDER: writes man/man1/*.1 and completions/ from what the commands say about
// themselves.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "cli/run_program.h"
#include "cli/version.h"
#include "core/file.h"
#include "manuals/described_command.h"

namespace clearhead::manuals {
namespace {

// CLI11 describes a list of allowed values as "TEXT:{a,b}".
std::vector<std::string> Choices(const std::string& type) {
  std::vector<std::string> choices;
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  std::size_t at = open + 1;
  while (at < close) {
    const std::size_t comma = std::min(type.find(',', at), close);
    choices.push_back(type.substr(at, comma - at));
    at = comma + 1;
  }
  return choices;
}

DescribedOption Describe(const CLI::Option& option) {
  const bool flag = option.get_items_expected_max() == 0;
  DescribedOption described{.help = option.get_description(),
                            .required = option.get_required(),
                            .repeats = option.get_expected_max() > 1};
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  const std::string type = option.get_type_name();
  if (described.names.empty()) {
    described.argument = option.get_name();
  } else if (!flag) {
    described.argument = type.substr(0, type.find(':'));
    described.choices = Choices(type);
  }
  return described;
}

DescribedCommand Describe(const CLI::App& app, const std::vector<std::string>& words) {
  DescribedCommand command{
      .words = words, .description = app.get_description(), .footer = app.get_footer()};
  for (const CLI::Option* option : app.get_options()) command.options.push_back(Describe(*option));
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::vector<std::string> inner_words = words;
    inner_words.push_back(inner->get_name());
    command.commands.push_back(Describe(*inner, inner_words));
  }
  return command;
}

void WriteAll(const std::filesystem::path& folder) {
  const DescribedCommand program = Describe(*cli::MakeProgram(), {});
  MakeDirectory(folder / "man/man1");
  for (const WrittenPage& page : ManualPages(program, cli::Version())) {
    WriteFile(folder / "man/man1" / page.name, page.text);
  }
  MakeDirectory(folder / "completions");
  WriteFile(folder / "completions/clearhead.bash", BashCompletion(program));
  WriteFile(folder / "completions/_clearhead", ZshCompletion(program));
  WriteFile(folder / "completions/clearhead.fish", FishCompletion(program));
}

}  // namespace
}  // namespace clearhead::manuals

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: clearhead_manual FOLDER\n");
    return 2;
  }
  try {
    clearhead::manuals::WriteAll(argv[1]);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "clearhead_manual: {}\n", error.what());
    return 1;
  }
}
