// SPDX-License-Identifier: MIT
// Ctrl-C during long work, or SIGUSR1, which mpirun passes on to all ranks and Slurm can send
// before the time is up: the first asks the work to stop at a good place and save; the second ends
// the program at once. In the library a host is asked instead, and no signal is touched.
#pragma once

#include <csignal>

#include "core/host.h"

namespace clearhead::cli {

// Thrown after a clean stop; the program then exits with 130, as a shell expects of an interrupted
// command.
using clearhead::Interrupted;

class InterruptGuard {
 public:
  InterruptGuard() {
    if (!signals_) return;
    flag_ = 0;
    old_int_ = std::signal(SIGINT, Handle);
    old_term_ = std::signal(SIGTERM, Handle);
    old_user_ = std::signal(SIGUSR1, Handle);
  }
  ~InterruptGuard() {
    if (!signals_) return;
    std::signal(SIGINT, old_int_);
    std::signal(SIGTERM, old_term_);
    std::signal(SIGUSR1, old_user_);
  }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool requested() const { return signals_ ? flag_ != 0 : CurrentHost()->should_stop(); }

 private:
  const StopsItself stops_itself_;
  const bool signals_ = CurrentHost() == nullptr || !CurrentHost()->should_stop;

  static void Handle(int signal) {
    flag_ = 1;
    std::signal(signal, SIG_DFL);
  }
  static inline volatile std::sig_atomic_t flag_ = 0;  // all that a signal handler may touch
  void (*old_int_)(int) = nullptr;
  void (*old_term_)(int) = nullptr;
  void (*old_user_)(int) = nullptr;
};

}  // namespace clearhead::cli
