// SPDX-License-Identifier: MIT
#include "core/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "support/with_threads.h"

namespace clearhead {
namespace {

class ThreadsTest : public WithThreads {};

constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 7, 64, 1009};

TEST_P(ThreadsTest, SetThreadsIsWhatThreadsSays) { EXPECT_EQ(Threads(), GetParam()); }

TEST_P(ThreadsTest, InsideParallelWorkThereIsOne) {
  ParallelFor(2, [](std::int64_t) { EXPECT_EQ(Threads(), 1); });
  EXPECT_EQ(Threads(), GetParam());
}

TEST_P(ThreadsTest, ForVisitsEveryItemOnce) {
  for (const std::int64_t count : kCounts) {
    std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
    ParallelFor(count, [&](std::int64_t i) { ++visits.at(static_cast<std::size_t>(i)); });
    for (const auto& visit : visits) EXPECT_EQ(visit, 1) << "of " << count;
  }
}

TEST_P(ThreadsTest, RangesCoverEveryItemOnceAndNameDistinctThreads) {
  for (const std::int64_t count : kCounts) {
    std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(GetParam()));
    ParallelRanges(count, [&](int thread, std::int64_t first, std::int64_t last) {
      EXPECT_LT(first, last);
      ++calls.at(static_cast<std::size_t>(thread));
      for (std::int64_t i = first; i < last; ++i) ++visits.at(static_cast<std::size_t>(i));
    });
    for (const auto& visit : visits) EXPECT_EQ(visit, 1) << "of " << count;
    for (const auto& call : calls) EXPECT_LE(call, 1) << "of " << count;
  }
}

TEST_P(ThreadsTest, NegativeCountIsNoWork) {
  ParallelFor(-1, [](std::int64_t) { FAIL(); });
  ParallelRanges(-1, [](int, std::int64_t, std::int64_t) { FAIL(); });
}

TEST_P(ThreadsTest, AnExceptionReachesTheCallerAndTheNextCallWorks) {
  for (const std::int64_t bad : {0, 5, 99}) {
    EXPECT_THROW(ParallelFor(100,
                             [&](std::int64_t i) {
                               if (i == bad) throw std::runtime_error("bad item");
                             }),
                 std::runtime_error);
    EXPECT_THROW(ParallelRanges(100,
                                [&](int, std::int64_t first, std::int64_t last) {
                                  if (first <= bad && bad < last) throw std::out_of_range("bad");
                                }),
                 std::out_of_range);
  }
  EXPECT_THROW(ParallelFor(1, [](std::int64_t) { throw std::runtime_error("only item"); }),
               std::runtime_error);
  EXPECT_THROW(ParallelFor(100, [](std::int64_t) { throw std::runtime_error("every item"); }),
               std::runtime_error);
  std::atomic<int> sum = 0;
  ParallelFor(10, [&](std::int64_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 45);
}

TEST_P(ThreadsTest, NestedCallsCoverEverything) {
  std::vector<std::atomic<int>> visits(7 * 13);
  ParallelFor(7, [&](std::int64_t i) {
    ParallelFor(13, [&](std::int64_t j) { ++visits.at(static_cast<std::size_t>(i * 13 + j)); });
  });
  for (const auto& visit : visits) EXPECT_EQ(visit, 1);
  ParallelRanges(7, [&](int, std::int64_t outer_first, std::int64_t outer_last) {
    for (std::int64_t i = outer_first; i < outer_last; ++i) {
      ParallelRanges(13, [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t j = first; j < last; ++j)
          ++visits.at(static_cast<std::size_t>(i * 13 + j));
      });
    }
  });
  for (const auto& visit : visits) EXPECT_EQ(visit, 2);
}

TEST_P(ThreadsTest, AnExceptionLeavesNestedCalls) {
  EXPECT_THROW(ParallelFor(5,
                           [](std::int64_t) {
                             ParallelFor(5, [](std::int64_t j) {
                               if (j == 3) throw std::runtime_error("inner");
                             });
                           }),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Counts, ThreadsTest, testing::Values(1, 2, 3, 8));

TEST(Threads, FewerThanOneIsOne) {
  const int before = Threads();
  SetThreads(0);
  EXPECT_EQ(Threads(), 1);
  SetThreads(-3);
  EXPECT_EQ(Threads(), 1);
  SetThreads(before);
}

}  // namespace
}  // namespace clearhead
