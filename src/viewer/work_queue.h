// SPDX-License-Identifier: MIT
// One thread that runs models, and a short line before it. The models use all threads of the pool,
// so a second run beside the first would only slow both; and what waits must not grow without
// bound.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/threads.h"

namespace clearhead {

// Who asks, so that a newer question replaces an older one of the same page.
struct Asker {
  std::string client;       // empty: nobody's
  std::int64_t number = 0;  // grows with each question of a client
};

enum class WorkOutcome {
  kDone,
  kFull,       // too many wait already
  kCancelled,  // a newer question of the same client came, or the asker is gone
  kTooLong,    // the time limit passed
  kRefused,    // the question was wrong: `text` says how
  kBroken,     // our own fault
};

struct WorkResult {
  WorkOutcome outcome = WorkOutcome::kBroken;
  std::string text;  // the answer, or one line about what is wrong
};

class WorkQueue {
 public:
  using Cancel = std::function<bool()>;
  using Work = std::function<std::string(const Cancel& cancelled)>;

  // The work runs with `pool`, which must outlive the queue; null: on the queue's thread alone.
  WorkQueue(std::size_t waiting, std::chrono::milliseconds limit, ThreadPool* pool);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  ~WorkQueue();

  // Waits for the answer. `gone` is asked now and then whether the asker still listens. Threads:
  // safe from any.
  WorkResult Ask(const Asker& asker, Work work, const std::function<bool()>& gone);

 private:
  struct Job;
  void Serve(ThreadPool* pool);

  const std::size_t waiting_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<Job>> jobs_;  // waiting
  std::shared_ptr<Job> running_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace clearhead
