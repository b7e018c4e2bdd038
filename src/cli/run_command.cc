// SPDX-License-Identifier: MIT
#include "cli/run_command.h"

#include <sys/mman.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>

#include "core/error.h"

namespace clearhead::cli {
namespace {

// Standard output goes to a file in memory while this lives.
class CapturedOutput {
 public:
  CapturedOutput() {
    std::fflush(stdout);
    saved_ = ::dup(STDOUT_FILENO);
    memory_ = ::memfd_create("clearhead", MFD_CLOEXEC);
    if (saved_ < 0 || memory_ < 0 || ::dup2(memory_, STDOUT_FILENO) < 0) {
      Restore();
      Fail("cannot redirect standard output");
    }
  }
  ~CapturedOutput() { Restore(); }
  CapturedOutput(const CapturedOutput&) = delete;
  CapturedOutput& operator=(const CapturedOutput&) = delete;

  std::string Text() const {
    std::fflush(stdout);
    std::string text(static_cast<std::size_t>(std::max<off_t>(::lseek(memory_, 0, SEEK_END), 0)),
                     '\0');
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t n =
          ::pread(memory_, text.data() + done, text.size() - done, static_cast<off_t>(done));
      if (n <= 0) Fail("cannot read redirected output");
      done += static_cast<std::size_t>(n);
    }
    return text;
  }

 private:
  void Restore() {
    std::fflush(stdout);
    if (saved_ >= 0) {
      ::dup2(saved_, STDOUT_FILENO);
      ::close(saved_);
    }
    if (memory_ >= 0) ::close(memory_);
    saved_ = memory_ = -1;
  }

  int saved_ = -1, memory_ = -1;
};

}  // namespace

std::string ShellWord(std::string_view word) {
  const auto plain = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./,:=+%@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string ShellLine(const CommandWords& words) {
  std::string line = "clearhead";
  for (const std::string& word : words) line += " " + ShellWord(word);
  return line;
}

void RunCommand(const CommandWords& words, const AddSome& add) {
  CLI::App app;
  add(app);
  try {
    // The library takes words from the back.
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    Check(false, fmt::format("'{}': {}", ShellLine(words), error.what()));
  }
}

std::string CaptureCommand(const CommandWords& words, const AddSome& add) {
  const CapturedOutput output;
  RunCommand(words, add);
  return output.Text();
}

}  // namespace clearhead::cli
