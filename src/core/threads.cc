// SPDX-License-Identifier: MIT
#include "core/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace clearhead {
namespace {

thread_local ThreadPool* current_pool = nullptr;

// How long a thread that waits looks again and again before it sleeps. Between the parallel pieces
// of one token lie a few microseconds, and waking a thread takes longer than that; but a core that
// spins is missing to the thread it waits for when the machine does anything else
// (docs/architecture.md, Threads).
constexpr std::chrono::microseconds kSpin{100};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `word` is no longer `seen`. What was written before it changed is then visible.
void AwaitChange(const std::atomic<std::uint32_t>& word, std::uint32_t seen, bool spin) {
  if (spin) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (word.load(std::memory_order_acquire) != seen) return;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < until);
  }
  word.wait(seen, std::memory_order_acquire);
}

}  // namespace

// One run at a time. Its items are taken from `next`, one word for the number of the run and the
// next item: a thread takes an item by counting it up, which fails if the run is another meanwhile.
// So a worker that wakes late takes nothing of a run that has ended, and nobody waits for a worker
// that took nothing.
struct ThreadPool::Shared {
  explicit Shared(int count) : threads(count), spin(count <= AvailableCores()) {}

  struct Item {
    ItemFunction call;
    const void* body;
    std::uint32_t index, count;
    bool one_each;
  };
  static constexpr std::uint32_t kNoItem = 0xffffffff;
  static constexpr std::int64_t kMostItems = kNoItem - 1;

  static std::uint64_t Ticket(std::uint32_t run, std::uint32_t item) {
    return std::uint64_t{run} << 32 | item;
  }

  // All that is read here belongs to run `number`: it is written while `next` has no item, and
  // `next` has not changed between the first line and the exchange. (Release and acquire on each,
  // so that a value of a new run cannot be seen before the end of the old one.)
  bool Take(std::uint32_t number, Item* item) {
    std::uint64_t ticket = next.load(std::memory_order_acquire);
    while (ticket >> 32 == number) {
      item->call = call.load(std::memory_order_acquire);
      item->body = body.load(std::memory_order_acquire);
      item->count = count.load(std::memory_order_acquire);
      item->one_each = one_each.load(std::memory_order_acquire);
      item->index = static_cast<std::uint32_t>(ticket);
      if (item->index >= item->count) return false;
      if (next.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }

  // Takes all items that are left of the run that the caller works in; how many.
  std::uint32_t TakeRest(std::uint32_t of) {
    std::uint64_t ticket = next.load(std::memory_order_acquire);
    while (true) {
      const std::uint32_t left = of - static_cast<std::uint32_t>(ticket);
      if (next.compare_exchange_weak(ticket, ticket + left, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        return left;
      }
    }
  }

  // How many items are finished with this one. The thread has let go of an exception when this
  // returns.
  std::uint32_t Do(const Item& item) {
    try {
      item.call(item.body, item.index);
      return 1;
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
    return 1 + (item.one_each ? 0 : TakeRest(item.count));
  }

  // Does items until none is left, or one if each thread shall do one.
  void Work(std::uint32_t number) {
    Item item;
    std::uint32_t finished = 0, of = 0;
    while (Take(number, &item)) {
      of = item.count;
      finished += Do(item);
      if (item.one_each) break;
    }
    if (finished == 0) return;
    if (done.fetch_add(finished, std::memory_order_acq_rel) + finished == of) done.notify_one();
  }

  void Serve() {
    std::uint32_t seen = 0;
    while (true) {
      AwaitChange(run, seen, spin);
      seen = run.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      Work(seen);
    }
  }

  // False: nothing was done, since there are no workers or they work for another thread.
  bool Run(std::uint32_t items, ItemFunction function, const void* object, bool each) {
    if (workers.empty() || busy.exchange(true, std::memory_order_acquire)) return false;
    call.store(function, std::memory_order_release);
    body.store(object, std::memory_order_release);
    count.store(items, std::memory_order_release);
    one_each.store(each, std::memory_order_release);
    done.store(0, std::memory_order_relaxed);
    const std::uint32_t number = run.load(std::memory_order_relaxed) + 1;
    next.store(Ticket(number, 0), std::memory_order_release);
    run.store(number);  // sequentially consistent, as the count of sleepers in wait and notify is
    Wake(items - 1);
    Work(number);
    for (std::uint32_t seen = done; seen != items; seen = done) AwaitChange(done, seen, spin);
    next.store(Ticket(number, kNoItem), std::memory_order_release);
    const std::exception_ptr thrown = std::exchange(error, nullptr);
    failed.store(false, std::memory_order_relaxed);
    busy.store(false, std::memory_order_release);
    if (thrown) std::rethrow_exception(thrown);
    return true;
  }

  // Wakes as many as have something to do.
  void Wake(std::size_t wanted) {
    if (wanted >= workers.size()) return run.notify_all();
    for (std::size_t i = 0; i < wanted; ++i) run.notify_one();
  }

  void Stop() {
    stopping.store(true, std::memory_order_release);
    run.fetch_add(1);
    run.notify_all();
    for (std::thread& worker : workers) worker.join();
  }

  const int threads;
  const bool spin;  // with more threads than cores the awaited one may have none
  std::vector<std::thread> workers;
  std::atomic<bool> busy = false;

  std::atomic<ItemFunction> call = nullptr;
  std::atomic<const void*> body = nullptr;
  std::atomic<std::uint32_t> count = 0;
  std::atomic<bool> one_each = false;
  std::atomic<bool> failed = false;
  std::exception_ptr error;  // belongs to the thread that set `failed`, then to the caller

  // Apart, since those who wait read one while those who work change another.
  alignas(64) std::atomic<std::uint64_t> next = Ticket(0, kNoItem);
  alignas(64) std::atomic<std::uint32_t> done = 0;  // items finished
  alignas(64) std::atomic<std::uint32_t> run = 0;   // number of the run; workers wait for it
  std::atomic<bool> stopping = false;
};

ThreadPool::ThreadPool(int threads) : shared_(std::make_unique<Shared>(std::max(threads, 1))) {
  const auto wanted = static_cast<std::size_t>(shared_->threads - 1);
  shared_->workers.reserve(wanted);
  try {
    while (shared_->workers.size() < wanted) {
      shared_->workers.emplace_back([shared = shared_.get()] { shared->Serve(); });
    }
  } catch (const std::system_error& error) {
    shared_->Stop();
    Fail("cannot start {} threads: {} after {}; use fewer", shared_->threads,
         error.code().message(), shared_->workers.size() + 1);
  }
}

ThreadPool::~ThreadPool() { shared_->Stop(); }

int ThreadPool::threads() const { return shared_->threads; }

void ThreadPool::Run(std::int64_t count, ItemFunction call, const void* body) {
  const ThreadScope inside(nullptr);
  if (count > 1 && count <= Shared::kMostItems &&
      shared_->Run(static_cast<std::uint32_t>(count), call, body, /*each=*/false)) {
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) call(body, i);
}

void ThreadPool::RunOnEach(ItemFunction call, const void* body) {
  const ThreadScope inside(nullptr);
  if (shared_->Run(static_cast<std::uint32_t>(shared_->threads), call, body, /*each=*/true)) return;
  call(body, 0);
}

ThreadScope::ThreadScope(ThreadPool* pool) : before_(current_pool) { current_pool = pool; }
ThreadScope::~ThreadScope() { current_pool = before_; }

ThreadPool* CurrentPool() { return current_pool; }

int Threads() { return current_pool == nullptr ? 1 : current_pool->threads(); }

int AvailableCores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u));
}

namespace internal {

void RunItems(std::int64_t count, ThreadPool::ItemFunction call, const void* body) {
  // One item is not parallel work: what it calls may use the threads.
  if (count > 1 && current_pool != nullptr) return current_pool->Run(count, call, body);
  for (std::int64_t i = 0; i < count; ++i) call(body, i);
}

void RunRanges(std::int64_t count, std::int64_t least, RangeFunction call, const void* body) {
  if (count <= 0) return;
  const int shares = Threads();
  if (count < 2 * least || shares == 1) return call(body, 0, 0, count);
  const auto share = [&](std::int64_t index) {
    const std::int64_t first = count * index / shares;
    const std::int64_t last = count * (index + 1) / shares;
    if (first < last) call(body, static_cast<int>(index), first, last);
  };
  ParallelFor(shares, share);
}

void RunOnEachThread(ThreadPool::ItemFunction call, const void* body) {
  if (current_pool != nullptr) return current_pool->RunOnEach(call, body);
  call(body, 0);
}

}  // namespace internal
}  // namespace clearhead
