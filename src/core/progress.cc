// SPDX-License-Identifier: MIT
#include "core/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/error.h"
#include "core/host.h"

namespace clearhead {
namespace {

constexpr double kSecondsBetweenDraws = 0.1;
constexpr double kSecondsBetweenLines = 10.0;
constexpr double kSecondsBeforeRate = 0.5;  // a rate from less is noise

// The first `columns` characters of UTF-8 text, counting one column per code point.
std::string CutToColumns(std::string_view text, int columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xc0) != 0x80;
    if (starts_character && columns-- <= 0) break;
  }
  return std::string(text.substr(0, end));
}

// By a host, in place of the terminal.
bool IsWatched() { return CurrentHost() != nullptr && CurrentHost()->progress; }

}  // namespace

ProgressOutput StandardErrorProgress() {
  ProgressOutput output;
  output.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  output.seconds = [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  };
  output.is_terminal = ::isatty(STDERR_FILENO) == 1;
  winsize window{};
  if (output.is_terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0) {
    output.columns = window.ws_col;
  }
  return output;
}

Progress::Progress(std::string label, std::int64_t total, std::string unit, ProgressOutput output)
    : label_(std::move(label)), total_(total), unit_(std::move(unit)), output_(std::move(output)) {
  output_.is_terminal |= output_.lines;
  if (output_.is_terminal) start_ = last_drawn_ = output_.seconds();
}

Progress::~Progress() {
  Clear();
  if (!reported_) return;
  try {
    Report(true);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the bar is gone, and a destructor cannot say so
  }
}

void Progress::Report(bool finished) {
  if (!IsWatched()) return;
  reported_ = !finished;
  CurrentHost()->progress({.label = label_,
                           .unit = unit_,
                           .extra = extra_,
                           .done = done_,
                           .total = total_,
                           .finished = finished});
}

void Progress::Clear() {
  if (drawn_ && !finished_ && !output_.lines) output_.write("\r\x1b[K");
  drawn_ = false;
}

void Progress::Update(std::int64_t done, std::string_view extra) {
  if (finished_) return;
  done_ = done;
  extra_ = extra;
  if (IsWatched()) Report(false);
  StopIfAsked();
  if (!output_.is_terminal || IsWatched()) return;
  const double now = output_.seconds();
  const double pause = output_.lines ? kSecondsBetweenLines : kSecondsBetweenDraws;
  if (now - last_drawn_ >= pause) Draw(now);
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  if (IsWatched()) return Report(true);
  if (!output_.is_terminal) return;
  Draw(output_.seconds());
  if (!output_.lines) output_.write("\n");
}

void Progress::Draw(double now) {
  const double elapsed = now - start_;
  const double rate = elapsed >= kSecondsBeforeRate ? static_cast<double>(done_) / elapsed : 0;
  std::string line = label_ + "  " + FormatCount(static_cast<double>(done_));
  if (total_ > 0) {
    const double share = static_cast<double>(done_) / static_cast<double>(total_);
    line += fmt::format("/{}  {:.0f}%", FormatCount(static_cast<double>(total_)),
                        std::floor(100 * std::clamp(share, 0.0, 1.0)));
  }
  if (rate > 0) line += fmt::format("  {} {}/s", FormatCount(rate), unit_);
  if (rate > 0 && total_ > done_) {
    line += fmt::format("  {} left", FormatDuration(static_cast<double>(total_ - done_) / rate));
  }
  if (!extra_.empty()) line += "  " + extra_;
  last_drawn_ = now;
  drawn_ = true;
  if (output_.lines) return output_.write(line + "\n");
  // One column stays free: some terminals wrap when the last one is written.
  output_.write(fmt::format("\r{}\x1b[K", CutToColumns(line, output_.columns - 1)));
}

std::string FormatDuration(double seconds) {
  constexpr double kLongest = 1e9;  // beyond, and for NaN, there is nothing sensible to say
  if (!(seconds < kLongest)) return "?";
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours == 0) return fmt::format("{}:{:02}", minutes, whole % 60);
  return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
}

std::string FormatCount(double count) {
  if (count < 0) return fmt::format("-{}", FormatCount(-count));
  if (count < 10'000 && count == std::floor(count)) return fmt::format("{:.0f}", count);
  const char* suffix = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (count < 999.5) break;
    count /= 1000;
    suffix = next;
  }
  // Three significant digits; the limits are where rounding would make a fourth.
  const int decimals = count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", count, decimals, suffix);
}

}  // namespace clearhead
