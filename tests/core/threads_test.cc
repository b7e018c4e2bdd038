// SPDX-License-Identifier: MIT
#include "core/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // which needs more memory to itself than a test may take away
#else
constexpr bool kSanitized = false;
#endif

class ThreadsTest : public WithThreads {};

constexpr std::int64_t kCounts[] = {0, 1, 2, 3, 7, 64, 1009};

TEST_P(ThreadsTest, ThePoolsAreWhatThreadsSays) { EXPECT_EQ(Threads(), GetParam()); }

TEST_P(ThreadsTest, InsideParallelWorkThereIsOne) {
  ParallelFor(20, [](std::int64_t) { EXPECT_EQ(Threads(), 1); });
  EXPECT_EQ(Threads(), GetParam());
  EXPECT_THROW(ParallelFor(20, [](std::int64_t) { throw std::runtime_error("item"); }),
               std::runtime_error);
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

TEST_P(ThreadsTest, OnEachThreadRunsOnceOnEach) {
  for (int round = 0; round < 200; ++round) {
    ParallelFor(round % 7, [](std::int64_t) {});  // threads that come late from another run
    std::mutex mutex;
    std::multiset<std::thread::id> seen;
    OnEachThread([&] {
      EXPECT_EQ(Threads(), 1);
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    ASSERT_EQ(seen.size(), static_cast<std::size_t>(GetParam()));
    for (const std::thread::id id : seen) ASSERT_EQ(seen.count(id), 1u);
  }
  EXPECT_THROW(OnEachThread([] { throw std::runtime_error("each"); }), std::runtime_error);
}

// The shares decide how sums round, so they are part of the promise of equal bits.
TEST_P(ThreadsTest, SharesAreThoseOfTheThreadCount) {
  const int threads = GetParam();
  for (const std::int64_t count : kCounts) {
    if (count < 2) continue;  // one share
    std::vector<std::pair<std::int64_t, std::int64_t>> shares(static_cast<std::size_t>(threads));
    ParallelRanges(count, [&](int share, std::int64_t first, std::int64_t last) {
      shares.at(static_cast<std::size_t>(share)) = {first, last};
    });
    for (std::int64_t t = 0; t < threads; ++t) {
      const std::pair expected{count * t / threads, count * (t + 1) / threads};
      const auto& share = shares[static_cast<std::size_t>(t)];
      if (expected.first == expected.second) continue;
      EXPECT_EQ(share, expected) << t << " of " << count;
    }
  }
}

TEST_P(ThreadsTest, AfterAnErrorNothingIsBegun) {
  std::atomic<int> begun = 0;
  EXPECT_THROW(ParallelFor(1'000'000,
                           [&](std::int64_t) {
                             ++begun;
                             throw std::runtime_error("at once");
                           }),
               std::runtime_error);
  EXPECT_LE(begun, GetParam());
}

// Every thread that works must hand the error over whole, whichever it is.
TEST_P(ThreadsTest, TheErrorIsOneThatWasThrown) {
  for (int round = 0; round < 200; ++round) {
    try {
      ParallelFor(8, [](std::int64_t i) { throw std::runtime_error(std::to_string(i)); });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).size(), 1u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, ThreadsTest, testing::Values(1, 2, 3, 8));

TEST(Threads, FewerThanOneIsOne) {
  for (const int count : {0, -3}) {
    const UseThreads scope(count);
    EXPECT_EQ(Threads(), 1);
  }
}

TEST(Threads, WithoutAScopeWorkIsSerial) {
  const ThreadScope none(nullptr);
  EXPECT_EQ(Threads(), 1);
  EXPECT_EQ(CurrentPool(), nullptr);
  const std::thread::id self = std::this_thread::get_id();
  std::int64_t next = 0;
  ParallelFor(100, [&](std::int64_t i) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    EXPECT_EQ(i, next++);
  });
  EXPECT_EQ(next, 100);
  int calls = 0;
  ParallelRanges(100, [&](int share, std::int64_t first, std::int64_t last) {
    EXPECT_EQ(share + first, 0);
    EXPECT_EQ(last, 100);
    ++calls;
  });
  OnEachThread([&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(Threads, ANewThreadHasNoScope) {
  const UseThreads scope(3);
  std::thread([] { EXPECT_EQ(Threads(), 1); }).join();
}

TEST(Threads, AScopeEndsWithTheOneBefore) {
  const UseThreads outer(3);
  {
    const UseThreads inner(2);
    EXPECT_EQ(Threads(), 2);
    const ThreadScope none(nullptr);
    EXPECT_EQ(Threads(), 1);
  }
  EXPECT_EQ(Threads(), 3);
}

std::int64_t SumOfShares(std::int64_t count) {
  std::vector<std::int64_t> partial(static_cast<std::size_t>(Threads()));
  ParallelRanges(count, [&](int share, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) partial.at(static_cast<std::size_t>(share)) += i;
  });
  return std::accumulate(partial.begin(), partial.end(), std::int64_t{0});
}

// Runs of changing size in quick succession: what a late thread takes must be of the right run.
TEST(ThreadPool, ManyShortRunsGiveEveryItemOnce) {
  for (const int threads : {2, 4}) {
    const UseThreads scope(threads);
    std::vector<std::atomic<int>> visits(64);
    for (int round = 0; round < 20'000; ++round) {
      const std::int64_t count = round % 64;
      ParallelFor(count, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      std::int64_t sum = 0;
      for (auto& visit : visits) sum += visit.exchange(0);
      ASSERT_EQ(sum, count);
    }
  }
}

TEST(ThreadPool, SeveralThreadsHavePoolsAtTheSameTime) {
  std::vector<std::thread> owners;
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([owner] {
      for (int round = 0; round < 20; ++round) {
        const UseThreads scope(1 + (owner + round) % 3);
        for (std::int64_t count = 1; count < 50; ++count) {
          ASSERT_EQ(SumOfShares(count), count * (count - 1) / 2);
        }
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
}

// Whoever finds the pool at work does his shares himself: the same ones, whatever the others do.
TEST(ThreadPool, SeveralThreadsMayShareOne) {
  ThreadPool pool(3);
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&pool] {
      const ThreadScope scope(&pool);
      for (int round = 0; round < 500; ++round) {
        const std::int64_t count = 1 + round % 50;
        ASSERT_EQ(SumOfShares(count), count * (count - 1) / 2);
        EXPECT_THROW(ParallelFor(5, [](std::int64_t) { throw std::runtime_error("mine"); }),
                     std::runtime_error);
      }
    });
  }
  for (std::thread& user : users) user.join();
}

TEST(ThreadPool, AUserDoesNotWaitForAnother) {
  ThreadPool pool(2);
  std::atomic<bool> started = false, release = false;
  std::thread first([&] {
    const ThreadScope scope(&pool);
    ParallelFor(2, [&](std::int64_t) {
      started = true;
      while (!release) std::this_thread::yield();
    });
  });
  while (!started) std::this_thread::yield();
  {
    const ThreadScope scope(&pool);
    const std::thread::id self = std::this_thread::get_id();
    std::vector<int> shares;
    ParallelRanges(10, [&](int share, std::int64_t, std::int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(Threads(), 1);
      shares.push_back(share);
    });
    EXPECT_EQ(shares, (std::vector{0, 1}));
    int calls = 0;
    OnEachThread([&] { ++calls; });
    EXPECT_EQ(calls, 1);
  }
  release = true;
  first.join();
}

// A pool within parallel work of another, and the same pool again.
TEST(ThreadPool, ScopesInsideParallelWork) {
  ThreadPool outer(2);
  const ThreadScope scope(&outer);
  ParallelFor(4, [&](std::int64_t) {
    const UseThreads inner(2);
    EXPECT_EQ(SumOfShares(100), 4950);
    const ThreadScope again(&outer);
    EXPECT_EQ(SumOfShares(100), 4950);
  });
}

// The processor's time, not the clock's: other programs do not add to it.
TEST(ThreadPool, ThreadsWithoutWorkSleep) {
  const UseThreads scope(4);
  ParallelFor(100, [](std::int64_t) {});
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

TEST(ThreadPool, ManyCanBeMadeAndEnded) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 5);
    const ThreadScope scope(&pool);
    if (round % 2 == 0) {
      EXPECT_EQ(SumOfShares(10), 45);
    }
  }
}

// As many as there may be: the system says no, and what was started ends.
TEST(ThreadPool, SaysWhenThereAreTooManyThreads) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit tight = before;
  tight.rlim_cur = std::size_t{1} << 30;  // a hundred stacks of 8 MB at most
  if (kSanitized || ::setrlimit(RLIMIT_AS, &tight) != 0) GTEST_SKIP();
  std::string message;
  try {
    const ThreadPool pool(4096);
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_NE(message.find("cannot start 4096 threads"), std::string::npos) << message;
  EXPECT_NE(message.find("use fewer"), std::string::npos) << message;
}

}  // namespace
}  // namespace clearhead
