// SPDX-License-Identifier: MIT
// Scratch memory that a thread keeps between calls, so that a training step allocates nothing.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "core/threads.h"

namespace clearhead {

// At least `size` values, uninitialised, valid until this thread asks for the same T and Use again.
// `Use` is any type that names the purpose: two scratch arrays alive at once need two names.
template <typename T, typename Use>
T* ThreadScratch(std::int64_t size) {
  thread_local Buffer<T> buffer;
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

// Grows the scratch of every thread of the pool to `size` before parallel work. Without it a thread
// that happened to get no task in one call would allocate in a later one.
template <typename T, typename Use>
void PrepareScratch(std::int64_t size) {
  thread_local std::int64_t prepared_size = 0;
  thread_local const ThreadPool* prepared_pool = nullptr;
  if (size <= prepared_size && CurrentPool() == prepared_pool) return;
  OnEachThread([size] { ThreadScratch<T, Use>(size); });
  prepared_size = size;
  prepared_pool = CurrentPool();
}

struct TaskScratch;    // of one parallel task
struct CallerScratch;  // of the call around the tasks

}  // namespace clearhead
