// Scratch memory that a thread keeps between calls, so that a training step allocates nothing.
#pragma once

#include <cstdint>

#include "core/buffer.h"

namespace clearhead {

// At least `size` values, uninitialised, valid until this thread asks for the same T and Use again.
// `Use` is any type that names the purpose: two scratch arrays alive at once need two names.
template <typename T, typename Use>
T* ThreadScratch(std::int64_t size) {
  thread_local Buffer<T> buffer;
  if (buffer.size() < size) buffer = Buffer<T>(size);
  return buffer.data();
}

struct TaskScratch;    // of one parallel task
struct CallerScratch;  // of the call around the tasks

}  // namespace clearhead
