// SPDX-License-Identifier: MIT
// Threads: pools that a caller owns. A ThreadPool has threads, a ThreadScope makes the calling
// thread use it, and ParallelFor and ParallelRanges share work out among whatever the scope has.
// Without a scope everything runs on the calling thread: using the library starts no thread and
// sets nothing for the whole process. The program makes its pool in cli/common.
//
// A pool may serve several threads. While it works for one of them the others do their own work
// themselves, in the same shares: results keep their bits.
#pragma once

#include <cstdint>
#include <memory>

namespace clearhead {

class ThreadPool {
 public:
  // `threads` with the caller: one fewer is started. Less than one means one. Throws Error if the
  // system gives no more threads.
  explicit ThreadPool(int threads);
  ~ThreadPool();  // nothing may be running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // What ParallelFor and OnEachThread are made of: call(body, i) for every i in [0, count), and
  // once on each thread (on the caller alone while the pool works for another thread).
  using ItemFunction = void (*)(const void* body, std::int64_t item);
  void Run(std::int64_t count, ItemFunction call, const void* body);
  void RunOnEach(ItemFunction call, const void* body);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

// While it lives, the calling thread uses `pool`; then the one from before. Scopes end in reverse
// order, on the thread that made them. Null: no pool.
class ThreadScope {
 public:
  explicit ThreadScope(ThreadPool* pool);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  ThreadPool* before_;
};

// The pool of the calling thread, to hand it on to another thread. Null without a scope and inside
// parallel work.
ThreadPool* CurrentPool();

// How many threads parallel work uses here: those of the scope's pool; one without a scope and
// inside parallel work.
int Threads();

// How many cores this process may use.
int AvailableCores();

// Calls body(i) for every i in [0, count), items handed out one by one to whichever thread is free.
// body may throw: no further item is begun, and when those that were begun have ended the exception
// that was first in time reaches the caller. Nested calls run serially.
template <typename Body>
void ParallelFor(std::int64_t count, const Body& body);

// Cuts [0, count) into as many contiguous shares as there are threads and calls body(share, first,
// last) for each that is not empty: for reductions with one partial result per share and for
// streaming memory. A thread that comes late finds its share taken by another. With less than
// `least` items for each of two threads there is one share: waking threads costs microseconds, and
// on a busy machine much more.
template <typename Body>
void ParallelRanges(std::int64_t count, const Body& body, std::int64_t least = 1);

// Calls body() once on every thread of the scope's pool: to prepare what belongs to a thread.
template <typename Body>
void OnEachThread(const Body& body);

// `least` for rows of `width` elements of cheap work.
inline std::int64_t LeastRows(std::int64_t width) { return (1 << 14) / (width + 1) + 1; }

namespace internal {
using RangeFunction = void (*)(const void* body, int share, std::int64_t first, std::int64_t last);
void RunItems(std::int64_t count, ThreadPool::ItemFunction call, const void* body);
void RunRanges(std::int64_t count, std::int64_t least, RangeFunction call, const void* body);
void RunOnEachThread(ThreadPool::ItemFunction call, const void* body);
}  // namespace internal

template <typename Body>
void ParallelFor(std::int64_t count, const Body& body) {
  internal::RunItems(
      count, [](const void* b, std::int64_t i) { (*static_cast<const Body*>(b))(i); },
      std::addressof(body));
}

template <typename Body>
void ParallelRanges(std::int64_t count, const Body& body, std::int64_t least) {
  internal::RunRanges(
      count, least,
      [](const void* b, int share, std::int64_t first, std::int64_t last) {
        (*static_cast<const Body*>(b))(share, first, last);
      },
      std::addressof(body));
}

template <typename Body>
void OnEachThread(const Body& body) {
  internal::RunOnEachThread([](const void* b, std::int64_t) { (*static_cast<const Body*>(b))(); },
                            std::addressof(body));
}

}  // namespace clearhead
