// SPDX-License-Identifier: MIT
// Long runs, stopped in the middle from outside.
#pragma once

#include <functional>
#include <utility>

#include "cli/program.h"
#include "train/metrics_log.h"

namespace clearhead {

// Starts the program and sends it `signal` once `is_ready` says so; returns the exit code.
inline int RunAndSignalWhen(std::vector<std::string> arguments,
                            const std::function<bool()>& is_ready, int signal) {
  arguments.insert(arguments.begin(), CLEARHEAD_PROGRAM);
  std::vector<char*> argv;
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t process = -1;
  EXPECT_EQ(::posix_spawn(&process, CLEARHEAD_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  int status = 0;
  while (true) {
    EXPECT_LT(std::chrono::steady_clock::now(), deadline);
    if (std::chrono::steady_clock::now() > deadline) signal = SIGKILL;
    const bool ready = is_ready();
    if (ready || signal == SIGKILL) {
      if (ready) ::kill(process, signal);
      if (::waitpid(process, &status, ready ? 0 : WNOHANG) != 0) break;
    }
    if (::waitpid(process, &status, WNOHANG) != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A training run, once the metrics in `out` have `lines` lines.
inline int RunAndSignal(std::vector<std::string> arguments, const std::filesystem::path& out,
                        int lines, int signal) {
  const auto ready = [&] {
    return std::filesystem::exists(out / "metrics.jsonl") &&
           static_cast<int>(ReadMetrics(out / "metrics.jsonl").size()) >= lines;
  };
  return RunAndSignalWhen(std::move(arguments), ready, signal);
}

}  // namespace clearhead
