// SPDX-License-Identifier: MIT
#include "core/threads.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <exception>
#include <mutex>

namespace clearhead {

#ifdef _OPENMP
int Threads() { return omp_in_parallel() ? 1 : omp_get_max_threads(); }
void SetThreads(int count) { omp_set_num_threads(std::max(count, 1)); }
#else
int Threads() { return 1; }
void SetThreads(int) {}
#endif

namespace internal {
namespace {

// Keeps the first exception; the others are dropped, as with any loop that stops at its first
// error.
class FirstError {
 public:
  void Capture() {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
  void Rethrow() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void RunItems(std::int64_t count, ItemFunction call, const void* body) {
  if (count == 1) return call(body, 0);
  FirstError error;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) if (!omp_in_parallel())
#endif
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      call(body, i);
    } catch (...) {
      error.Capture();
    }
  }
  error.Rethrow();
}

void RunRanges(std::int64_t count, std::int64_t least, RangeFunction call, const void* body) {
  if (count <= 0) return;
  if (count < 2 * least) return call(body, 0, 0, count);
  FirstError error;
#ifdef _OPENMP
#pragma omp parallel if (!omp_in_parallel())
  {
    const int threads = omp_get_num_threads();
    const int thread = omp_get_thread_num();
#else
  {
    const int threads = 1;
    const int thread = 0;
#endif
    const std::int64_t first = count * thread / threads;
    const std::int64_t last = count * (thread + 1) / threads;
    try {
      if (first < last) call(body, thread, first, last);
    } catch (...) {
      error.Capture();
    }
  }
  error.Rethrow();
}

}  // namespace internal
}  // namespace clearhead
