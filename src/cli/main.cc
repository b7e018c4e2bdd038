// SPDX-License-Identifier: MIT
// The program. Exit codes: 0 done, 1 the world was not as needed, 2 the command line was not
// understood, 130 interrupted after saving.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/ranks.h"
#include "cli/run_program.h"
#include "core/error.h"

namespace {

// How a command went: its exit code, and what the user is told if that is not 0.
struct Outcome {
  int code = 0;
  std::string message = {};
};

// One line, and nothing that a terminal would obey, whatever a name in a file or an argument has in
// it.
int Complain(Outcome outcome) {
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  std::replace_if(outcome.message.begin(), outcome.message.end(), control, ' ');
  fmt::print(stderr, "clearhead: {}\n", outcome.message);
  return outcome.code;
}

Outcome Run(const std::vector<std::string>& words) {
  try {
    clearhead::cli::RunProgram(words);
    return {};
  } catch (const clearhead::RankFailed&) {
    return {};  // that rank says it
  } catch (const clearhead::Interrupted& error) {
    return {130, error.what()};
  } catch (const clearhead::UsageError& error) {
    return {2, error.what()};
  } catch (const std::bad_alloc&) {
    return {1, "not enough memory"};
  } catch (const std::exception& error) {
    return {1, error.what()};
  }
}

// All ranks end together, and one of those that failed says why.
int End(Outcome outcome) {
  clearhead::Communicator& ranks = clearhead::cli::Ranks();
  const clearhead::Communicator::Ending ending = ranks.Leave(outcome.code);
  if (ending.code != 0 && ending.speaks) {
    if (ending.named) {
      outcome.message = fmt::format("{}: {}", clearhead::cli::RankName(ranks), outcome.message);
    }
    Complain(outcome);
  }
  clearhead::cli::EndRanks();
  return ending.code;
}

}  // namespace

int main(int argc, char** argv) {
  // A file beyond the user's size limit is an error to report, like a full disk, not a reason to
  // die.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    clearhead::cli::Ranks();  // before anything is done by one that is not alone
  } catch (const clearhead::Error& error) {
    return Complain({1, error.what()});
  }
  return End(Run({argv + std::min(argc, 1), argv + argc}));
}
