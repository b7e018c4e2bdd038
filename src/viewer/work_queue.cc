// SPDX-License-Identifier: MIT
#include "viewer/work_queue.h"

#include <atomic>
#include <new>

#include "core/error.h"
#include "viewer/prompt_run.h"

namespace clearhead {

struct WorkQueue::Job {
  Asker asker;
  Work work;
  std::chrono::steady_clock::time_point deadline;
  std::atomic<bool> cancelled = false;
  // Guarded by mutex_.
  bool done = false;
  WorkResult result;
  std::condition_variable finished;
};

WorkQueue::WorkQueue(std::size_t waiting, std::chrono::milliseconds limit, ThreadPool* pool)
    : waiting_(waiting), limit_(limit), thread_([this, pool] { Serve(pool); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (running_) running_->cancelled = true;
  }
  arrived_.notify_all();
  thread_.join();
}

WorkResult WorkQueue::Ask(const Asker& asker, Work work, const std::function<bool()>& gone) {
  auto job = std::make_shared<Job>();
  job->asker = asker;
  job->work = std::move(work);
  job->deadline = std::chrono::steady_clock::now() + limit_;
  std::unique_lock lock(mutex_);
  if (!asker.client.empty()) {
    const auto replace = [&](Job& older) {
      if (older.asker.client == asker.client && older.asker.number < asker.number) {
        older.cancelled = true;
      }
    };
    if (running_) replace(*running_);
    for (const auto& older : jobs_) replace(*older);
    // What is cancelled need not keep its place in the line.
    std::erase_if(jobs_, [](const std::shared_ptr<Job>& older) {
      if (!older->cancelled) return false;
      older->result = {WorkOutcome::kCancelled, "a newer question took its place"};
      older->done = true;
      older->finished.notify_all();
      return true;
    });
  }
  if (jobs_.size() >= waiting_) return {WorkOutcome::kFull, "too many questions wait; try again"};
  jobs_.push_back(job);
  arrived_.notify_one();
  while (!job->done) {
    job->finished.wait_for(lock, std::chrono::milliseconds(100));
    if (job->done) break;
    lock.unlock();
    const bool left = gone && gone();
    lock.lock();
    if (left) job->cancelled = true;
  }
  return std::move(job->result);
}

void WorkQueue::Serve(ThreadPool* pool) {
  const ThreadScope scope(pool);
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (stopping_ && jobs_.empty()) return;
      job = jobs_.front();
      jobs_.pop_front();
      running_ = job;
      if (stopping_) job->cancelled = true;
    }
    const auto late = [&] { return std::chrono::steady_clock::now() > job->deadline; };
    WorkResult result;
    try {
      const Cancel cancelled = [&] { return job->cancelled || late(); };
      if (cancelled()) throw Cancelled("cancelled before it began");
      result = {WorkOutcome::kDone, job->work(cancelled)};
    } catch (const Cancelled& stopped) {
      result = job->cancelled ? WorkResult{WorkOutcome::kCancelled, stopped.what()}
                              : WorkResult{WorkOutcome::kTooLong, "the time limit has passed"};
    } catch (const Error& error) {
      result = {WorkOutcome::kRefused, error.what()};
    } catch (const std::bad_alloc&) {
      result = {WorkOutcome::kBroken, "not enough memory"};
    } catch (const std::exception&) {
      result = {WorkOutcome::kBroken, "an error in the program itself"};
    }
    const std::lock_guard lock(mutex_);
    running_.reset();
    job->work = {};
    job->result = std::move(result);
    job->done = true;
    job->finished.notify_all();
  }
}

}  // namespace clearhead
