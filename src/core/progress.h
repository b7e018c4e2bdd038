// SPDX-License-Identifier: MIT
// A progress line for people: drawn on a terminal, silent everywhere else, so that logs and pipes
// never see it. A host (host.h) gets the same as calls instead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace clearhead {

// Where the line goes and what time it is; tests give their own.
struct ProgressOutput {
  std::function<void(std::string_view)> write;
  std::function<double()> seconds;  // a clock that never goes back
  bool is_terminal = false;
  // Every ten seconds a line of its own instead: for the output of ranks, which reaches the user's
  // terminal through other programs.
  bool lines = false;
  int columns = 80;  // longer lines are cut, because a wrapped line cannot be redrawn
};

// stderr, and whether it is a terminal.
ProgressOutput StandardErrorProgress();

// Draws "label  done/total  12%  3.4k tok/s  1:02:03 left  extra", at most ten times a second.
// The destructor erases the line, so that an error message starts on a clean one; Finish() draws
// the last state and ends the line. Not for use by several threads. Update throws Interrupted
// where a host wants the work to stop.
class Progress {
 public:
  // total 0: unknown; the line then shows neither percentage nor remaining time.
  Progress(std::string label, std::int64_t total, std::string unit,
           ProgressOutput output = StandardErrorProgress());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  void Update(std::int64_t done, std::string_view extra = {});
  void Finish();
  // Erases the line until the next Update, so that other text can be printed.
  void Clear();

 private:
  void Draw(double now);
  void Report(bool finished);

  std::string label_;
  std::int64_t total_;
  std::string unit_;
  ProgressOutput output_;
  double start_ = 0;
  double last_drawn_ = 0;
  std::int64_t done_ = 0;
  std::string extra_;
  bool drawn_ = false;  // something is on the terminal's line
  bool finished_ = false;
  bool reported_ = false;  // the host knows of it
};

std::string FormatDuration(double seconds);  // "0:07", "12:34", "1:02:03"
std::string FormatCount(double count);       // "7", "0.25", "7.30", "9999", "12.3k", "4.56M"

}  // namespace clearhead
