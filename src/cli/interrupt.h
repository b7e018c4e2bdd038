// SPDX-License-Identifier: MIT
// Ctrl-C during long work: the first asks the work to stop at a good place and save; the second
// ends the program at once.
#pragma once

#include <csignal>

#include "core/error.h"

namespace clearhead::cli {

// Thrown after a clean stop; the program then exits with 130, as a shell expects of an interrupted
// command.
class Interrupted : public Error {
 public:
  using Error::Error;
};

class InterruptGuard {
 public:
  InterruptGuard() {
    flag_ = 0;
    old_int_ = std::signal(SIGINT, Handle);
    old_term_ = std::signal(SIGTERM, Handle);
  }
  ~InterruptGuard() {
    std::signal(SIGINT, old_int_);
    std::signal(SIGTERM, old_term_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool requested() const { return flag_ != 0; }

 private:
  static void Handle(int signal) {
    flag_ = 1;
    std::signal(signal, SIG_DFL);
  }
  static inline volatile std::sig_atomic_t flag_ = 0;  // all that a signal handler may touch
  void (*old_int_)(int) = nullptr;
  void (*old_term_)(int) = nullptr;
};

}  // namespace clearhead::cli
