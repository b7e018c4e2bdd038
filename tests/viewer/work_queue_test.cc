// SPDX-License-Identifier: MIT
// The line before the models.
#include "viewer/work_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "viewer/prompt_run.h"

namespace clearhead {
namespace {

using std::chrono::milliseconds;

// Works until it is cancelled or released, as a model run does between layers.
WorkQueue::Work Until(const std::atomic<bool>& release, std::atomic<int>* started) {
  return [&release, started](const WorkQueue::Cancel& cancelled) -> std::string {
    ++*started;
    while (!release) {
      if (cancelled()) throw Cancelled("stopped");
      std::this_thread::sleep_for(milliseconds(1));
    }
    return "answer";
  };
}

class WorkQueueTest : public ::testing::Test {
 protected:
  std::future<WorkResult> Ask(WorkQueue& queue, Asker asker, std::function<bool()> gone = {}) {
    return std::async(std::launch::async, [this, &queue, asker, gone] {
      return queue.Ask(asker, Until(release_, &started_), gone);
    });
  }
  void AwaitStarts(int count) const {
    while (started_ < count) std::this_thread::sleep_for(milliseconds(1));
  }

  std::atomic<bool> release_ = false;
  std::atomic<int> started_ = 0;
};

TEST_F(WorkQueueTest, ANewerQuestionOfTheSameClientStopsTheOlder) {
  WorkQueue queue(4, milliseconds(60'000), CurrentPool());
  auto first = Ask(queue, {"page", 1});
  AwaitStarts(1);
  auto second = Ask(queue, {"page", 2});
  EXPECT_EQ(first.get().outcome, WorkOutcome::kCancelled);
  AwaitStarts(2);
  // Another client's question, an older one and one without a name stop nothing.
  auto other = Ask(queue, {"other page", 3});
  auto older = Ask(queue, {"page", 1});
  auto nameless = Ask(queue, {"", 9});
  release_ = true;
  for (auto* answer : {&second, &other, &older, &nameless}) {
    const WorkResult result = answer->get();
    EXPECT_EQ(result.outcome, WorkOutcome::kDone);
    EXPECT_EQ(result.text, "answer");
  }
}

TEST_F(WorkQueueTest, AFullLineRefusesAtOnce) {
  WorkQueue queue(1, milliseconds(60'000), CurrentPool());
  auto running = Ask(queue, {});
  AwaitStarts(1);
  // One of two waits, the other is refused: which, is theirs to decide.
  auto a = Ask(queue, {}), b = Ask(queue, {});
  while (a.wait_for(milliseconds(1)) != std::future_status::ready &&
         b.wait_for(milliseconds(1)) != std::future_status::ready) {
  }
  release_ = true;
  const WorkOutcome of_a = a.get().outcome, of_b = b.get().outcome;
  EXPECT_TRUE((of_a == WorkOutcome::kFull) != (of_b == WorkOutcome::kFull));
  EXPECT_TRUE((of_a == WorkOutcome::kDone) != (of_b == WorkOutcome::kDone));
  EXPECT_EQ(running.get().outcome, WorkOutcome::kDone);
}

TEST_F(WorkQueueTest, TimeRunsOutWhileRunningAndWhileWaiting) {
  WorkQueue queue(4, milliseconds(50), CurrentPool());
  auto running = Ask(queue, {});
  AwaitStarts(1);
  auto waiting = Ask(queue, {});
  EXPECT_EQ(running.get().outcome, WorkOutcome::kTooLong);
  EXPECT_EQ(waiting.get().outcome, WorkOutcome::kTooLong);
}

TEST_F(WorkQueueTest, WorkForAClientThatLeftStops) {
  WorkQueue queue(4, milliseconds(60'000), CurrentPool());
  std::atomic<bool> gone = false;
  auto running = Ask(queue, {}, [&] { return gone.load(); });
  AwaitStarts(1);
  gone = true;
  EXPECT_EQ(running.get().outcome, WorkOutcome::kCancelled);
}

// The queue has a thread of its own, which must not fall back to a number of its own.
TEST_F(WorkQueueTest, TheWorkRunsWithThePoolThatWasGiven) {
  const auto threads = [](const WorkQueue::Cancel&) { return std::to_string(Threads()); };
  for (const int count : {1, 3, 5}) {
    ThreadPool pool(count);
    WorkQueue queue(4, milliseconds(60'000), &pool);
    EXPECT_EQ(queue.Ask({}, threads, {}).text, std::to_string(count));
  }
  WorkQueue alone(4, milliseconds(60'000), nullptr);
  EXPECT_EQ(alone.Ask({}, threads, {}).text, "1");
}

TEST_F(WorkQueueTest, FailuresAreAnswers) {
  WorkQueue queue(4, milliseconds(60'000), CurrentPool());
  const WorkResult refused =
      queue.Ask({}, [](const WorkQueue::Cancel&) -> std::string { throw Error("why"); }, {});
  EXPECT_EQ(refused.outcome, WorkOutcome::kRefused);
  EXPECT_EQ(refused.text, "why");
  const WorkResult broken = queue.Ask(
      {}, [](const WorkQueue::Cancel&) -> std::string { throw std::logic_error("/a/path"); }, {});
  EXPECT_EQ(broken.outcome, WorkOutcome::kBroken);
  EXPECT_EQ(broken.text.find('/'), std::string::npos);
}

}  // namespace
}  // namespace clearhead
