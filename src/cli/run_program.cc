// SPDX-License-Identifier: MIT
#include "cli/run_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <sstream>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/version.h"
#include "core/error.h"

namespace clearhead::cli {
namespace {

// No command, or one that does not exist: CLI11 would only say "A subcommand is required".
std::string CommandNeeded(const CLI::App& app) {
  const std::vector<std::string> rest = app.remaining();
  std::vector<std::string> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  return fmt::format("{}; the commands are {}",
                     rest.empty()               ? std::string("a command is needed")
                     : rest[0].starts_with("-") ? fmt::format("'{}' is not an option", rest[0])
                                                : fmt::format("'{}' is not a command", rest[0]),
                     fmt::join(commands, ", "));
}

// CLI11's own words, on one line, and where to look.
[[noreturn]] void RefuseUsage(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "clearhead";
  const CLI::App* at = &app;  // down to the command, or the group that got none
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  const bool group = !at->get_subcommands([](const CLI::App*) { return true; }).empty();
  FailUsage("{} (see {} --help)", group ? CommandNeeded(*at) : error.what(), command);
}

}  // namespace

std::shared_ptr<CLI::App> MakeProgram() {
  auto app = std::make_shared<CLI::App>(
      "clearhead: makes the attention of GPT-2-family models sparse, and shows what every head "
      "does.\n"
      "MODEL is a folder in Hugging Face layout, or the name of a model that ships with the "
      "program.",
      "clearhead");
  app->set_version_flag("--version", fmt::format("clearhead {} ({})", Version(), Commit()));
  app->require_subcommand(1);
  app->footer("Start with: clearhead info\nEvery command has --help with an example.");
  AddCommands(*app);
  return app;
}

void RunProgram(const std::vector<std::string>& words) {
  const std::shared_ptr<CLI::App> app = MakeProgram();
  try {
    app->parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) RefuseUsage(*app, error);
    std::ostringstream out;  // --help and --version
    app->exit(error, out, out);
    Print(out.str());
  }
}

}  // namespace clearhead::cli
