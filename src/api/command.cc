// SPDX-License-Identifier: MIT
#include <clearhead/command.h>
#include <clearhead/version.h>

#include "api/boundary.h"
#include "cli/run_program.h"
#include "cli/version.h"

namespace clearhead::api {

std::string Command(const std::vector<std::string>& words, const Control& control) {
  return AtBoundary([&] {
    std::string text;
    Host host = HostOf(control);
    host.print = [&](std::string_view part) { text += part; };
    const HostScope scope(&host);
    cli::RunProgram(words);
    return text;
  });
}

const char* Version() { return cli::Version(); }
const char* Commit() { return cli::Commit(); }

}  // namespace clearhead::api
