// SPDX-License-Identifier: MIT
// The program. Exit codes: 0 done, 1 the world was not as needed, 2 the command line was not
// understood, 130 interrupted after saving.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/version.h"
#include "core/error.h"

namespace {

// One line, and nothing that a terminal would obey, whatever a name in a file or an argument has in
// it.
int Complain(std::string message, int code) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::replace_if(message.begin(), message.end(), control, ' ');
  fmt::print(stderr, "clearhead: {}\n", message);
  return code;
}

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
int ComplainUsage(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = "clearhead";
  const CLI::App* at = &app;  // down to the command, or the group that got none
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  const bool group = !at->get_subcommands([](const CLI::App*) { return true; }).empty();
  return Complain(
      fmt::format("{} (see {} --help)", group ? CommandNeeded(*at) : error.what(), command), 2);
}

// --help and --version. A full disk must be noticed here too.
int ShowHelp(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream out;
  app.exit(error, out, out);
  try {
    clearhead::cli::Print(out.str());
  } catch (const clearhead::Error& failed) {
    return Complain(failed.what(), 1);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A file beyond the user's size limit is an error to report, like a full disk, not a reason to
  // die.
  std::signal(SIGXFSZ, SIG_IGN);
  CLI::App app{
      "clearhead: makes the attention of GPT-2-family models sparse, and shows what every head "
      "does.\n"
      "MODEL is a folder in Hugging Face layout, or the name of a model that ships with the "
      "program.",
      "clearhead"};
  app.set_version_flag("--version", fmt::format("clearhead {} ({})", clearhead::cli::Version(),
                                                clearhead::cli::Commit()));
  app.require_subcommand(1);
  app.footer("Start with: clearhead info\nEvery command has --help with an example.");
  clearhead::cli::AddCommands(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return ComplainUsage(app, error);
    return ShowHelp(app, error);
  } catch (const clearhead::cli::Interrupted& error) {
    return Complain(error.what(), 130);
  } catch (const clearhead::UsageError& error) {
    return Complain(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return Complain("not enough memory", 1);
  } catch (const std::exception& error) {
    return Complain(error.what(), 1);
  }
}
