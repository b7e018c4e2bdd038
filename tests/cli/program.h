// SPDX-License-Identifier: MIT
// Running the program as a user does: arguments in; exit code, stdout and stderr out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "support/temporary_folder.h"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX leaves it to the user

namespace clearhead {

struct ProgramRun {
  int code = -1;  // 128 + signal if it was killed by one
  std::string out, err;

  std::vector<std::string> ErrorLines() const {
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < err.size();) {
      const std::size_t end = std::min(err.find('\n', begin), err.size());
      lines.push_back(err.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  }
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::chrono::seconds kProgramLimit{900};
#else
constexpr std::chrono::seconds kProgramLimit{120};
#endif

struct ProgramInput {
  std::string text = {};              // standard input
  std::string out = {};               // a file for stdout (then not captured), e.g. /dev/full
  bool close_out = false;             // start with stdout closed
  std::filesystem::path folder = {};  // working folder
  std::chrono::seconds limit = kProgramLimit;
};

inline ProgramRun RunProgram(const std::vector<std::string>& arguments,
                             const ProgramInput& input = {}) {
  const TemporaryFolder files;
  WriteFile(files / "in", input.text);
  const std::string in = files / "in",
                    out = input.out.empty() ? (files / "out").string() : input.out,
                    err = files / "err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  if (input.close_out) {
    posix_spawn_file_actions_addclose(&actions, 1);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  }
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  if (!input.folder.empty()) posix_spawn_file_actions_addchdir_np(&actions, input.folder.c_str());

  std::vector<std::string> words = {CLEARHEAD_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t process = -1;
  const int failed =
      ::posix_spawn(&process, CLEARHEAD_PROGRAM, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error("cannot start " CLEARHEAD_PROGRAM);

  int status = 0;
  const auto deadline = std::chrono::steady_clock::now() + input.limit;
  while (::waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ::kill(process, SIGKILL);
      ::waitpid(process, &status, 0);
      ADD_FAILURE() << "the program did not end within " << input.limit.count() << " s";
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ProgramRun run;
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (input.out.empty() && !input.close_out) run.out = ReadFile(out);
  run.err = ReadFile(err);
  return run;
}

// A run that must succeed and say nothing on stderr, which is no terminal here.
inline ProgramRun Succeed(const std::vector<std::string>& arguments,
                          const ProgramInput& input = {}) {
  ProgramRun run = RunProgram(arguments, input);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run;
}

// With --json: stdout is one JSON document and nothing else.
inline Json SucceedJson(std::vector<std::string> arguments, const ProgramInput& input = {}) {
  arguments.push_back("--json");
  const ProgramRun run = Succeed(arguments, input);
  return run.out.empty() ? Json() : ParseJson(run.out, "stdout");
}

// A run that must end with `code`, one line on stderr that has all `parts` in it, and nothing on
// stdout.
inline void ExpectFailure(const std::vector<std::string>& arguments, int code,
                          const std::vector<std::string>& parts, const ProgramInput& input = {}) {
  const ProgramRun run = RunProgram(arguments, input);
  EXPECT_EQ(run.code, code) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.ErrorLines().size(), 1u) << run.err;
  EXPECT_TRUE(run.err.starts_with("clearhead: ")) << run.err;
  EXPECT_TRUE(run.err.ends_with("\n")) << run.err;
  EXPECT_EQ(run.err.find("internal error"), std::string::npos) << run.err;
  for (const std::string& part : parts) {
    EXPECT_NE(run.err.find(part), std::string::npos)
        << "'" << run.err << "' lacks '" << part << "'";
  }
}

inline std::vector<std::string> FilesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    names.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace clearhead
