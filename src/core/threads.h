// SPDX-License-Identifier: MIT
// Threads: one pool for the whole program, OpenMP's, which OpenBLAS uses too. (Two pools on few
// cores fight: baselines in docs/architecture.md.)
#pragma once

#include <cstdint>
#include <memory>

namespace clearhead {

// How many threads parallel work uses: all cores until SetThreads; one inside parallel work.
int Threads();
void SetThreads(int count);

// Calls body(i) for every i in [0, count), items handed out one by one to whichever thread is free.
// body may throw: the first exception (lowest thread) reaches the caller after all threads stopped.
// Nested calls run serially.
template <typename Body>
void ParallelFor(std::int64_t count, const Body& body);

// Calls body(thread, first, last) once per thread with a contiguous share of [0, count): for
// reductions with one partial result per thread and for streaming memory. With less than `least`
// items for each of two threads the caller does it alone: waking threads costs microseconds, and on
// a busy machine much more.
template <typename Body>
void ParallelRanges(std::int64_t count, const Body& body, std::int64_t least = 1);

// `least` for rows of `width` elements of cheap work.
inline std::int64_t LeastRows(std::int64_t width) { return (1 << 14) / (width + 1) + 1; }

namespace internal {
using ItemFunction = void (*)(const void* body, std::int64_t item);
using RangeFunction = void (*)(const void* body, int thread, std::int64_t first, std::int64_t last);
void RunItems(std::int64_t count, ItemFunction call, const void* body);
void RunRanges(std::int64_t count, std::int64_t least, RangeFunction call, const void* body);
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
      [](const void* b, int thread, std::int64_t first, std::int64_t last) {
        (*static_cast<const Body*>(b))(thread, first, last);
      },
      std::addressof(body));
}

}  // namespace clearhead
