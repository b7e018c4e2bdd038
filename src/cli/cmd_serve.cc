// SPDX-License-Identifier: MIT
// clearhead serve [A] [B]: the page in a browser.
#include <fmt/format.h>
#include <malloc.h>
#include <spawn.h>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/viewed_models.h"
#include "viewer/page_assets.h"
#include "viewer/server.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the user

namespace clearhead::cli {
namespace {

struct Options {
  CommonOptions common;
  ViewedOptions viewed;
  std::string host = "127.0.0.1", results;
  int port = 8042;
  bool open = false;
};

// Best effort: the address is printed anyway.
void OpenBrowser(std::string address) {
  std::string program = "xdg-open";
  char* const arguments[] = {program.data(), address.data(), nullptr};
  pid_t process = -1;
  ::posix_spawnp(&process, program.c_str(), nullptr, nullptr, arguments, environ);
}

void Run(const Options& o) {
  // Larger blocks go back to the system when they are freed. Left to itself malloc keeps ever
  // larger ones, and questions of many sizes leave gaps between them: a server of small models grew
  // to six times its size.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 18);
  std::vector<ResultFile> results;
  if (!o.results.empty()) results = ReadResults(o.results);
  PageServer server(OpenViewedModels(o.viewed), std::move(results), CurrentPool());
  const int port = server.Bind(o.host, o.port);
  const bool six = o.host.find(':') != std::string::npos;
  const std::string address =
      fmt::format("http://{}:{}/", six ? fmt::format("[{}]", o.host) : o.host, port);
  if (o.common.json) {
    PrintJson({{"address", address}, {"port", port}});
  } else {
    Print(PageScript().empty()
              ? fmt::format("The API is at {}api; the page was left out (-DCLEARHEAD_WEB=OFF)\n",
                            address)
              : fmt::format("The page is at {} (Ctrl-C stops it)\n", address));
  }
  if (o.open) OpenBrowser(address);
  // Nothing is written while serving, so Ctrl-C may end the program as it ends any other: at once.
  server.Listen();
}

}  // namespace

void AddServe(CLI::App& app) {
  auto options = std::make_shared<Options>();
  Command* command = AddCommand(
      app, "serve", "Explore one or two models side by side in a browser, on this machine only",
      "clearhead serve gpt2 sparse-gpt2 --open", options, Run);
  options->viewed.Add(command);
  command->add_option("--results", options->results,
                      "Folder with results of `circuit --out` and `scatter --json` to show");
  command->add_option("--port", options->port, "Port (default: 8042; 0: any free one)")
      ->check(Range(0, 65535));
  command->add_option("--host", options->host,
                      "Address to listen on (default: 127.0.0.1; others let other machines in)");
  command->add_flag("--open", options->open, "Open the browser");
}

}  // namespace clearhead::cli
