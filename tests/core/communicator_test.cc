// SPDX-License-Identifier: MIT
// What ranks say to each other, with threads for ranks.
#include "core/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "support/thread_ranks.h"

namespace clearhead {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

float ValueOf(int rank, std::int64_t i) {
  return 0.1f * static_cast<float>((rank + 1) * (i % 97)) - 1.7f / static_cast<float>(i + 1);
}

TEST(Communicator, OneRankIsAlone) {
  Communicator one;
  EXPECT_TRUE(one.alone() && one.first());
  EXPECT_EQ(one.Sum(2.5), 2.5);
  EXPECT_TRUE(one.Any(true));
  EXPECT_EQ(one.Share(7).size(), 7);
  std::vector<float> values = {1.0f, 2.0f};
  one.StartReduceScatter(values);
  one.StartAllGather(values);
  one.WaitAll();
  EXPECT_THAT(values, ElementsAre(1.0f, 2.0f));
  EXPECT_EQ(one.Leave(3).code, 3);
}

class Ranks : public ::testing::TestWithParam<int> {};

TEST_P(Ranks, NumbersOfAll) {
  const auto messages = RunRanks(GetParam(), [](Communicator& ranks) {
    const int n = ranks.size();
    std::vector<double> values = {1.0, static_cast<double>(ranks.rank())};
    ranks.Sum(values);
    EXPECT_EQ(values[0], n);
    EXPECT_EQ(values[1], n * (n - 1) / 2);
    EXPECT_EQ(ranks.OfFirst(5.0 + ranks.rank()), 5.0);
    EXPECT_TRUE(ranks.Any(ranks.rank() == n - 1));
    EXPECT_FALSE(ranks.Any(false));
    std::vector<float> part(3, static_cast<float>(ranks.rank()));
    ranks.ToFirst(n - 1, part);
    EXPECT_EQ(part[2], static_cast<float>(ranks.first() ? n - 1 : ranks.rank()));
  });
  EXPECT_THAT(messages, Each(""));
}

// Many operations at once, shares of no value among them; the sum goes by rank.
TEST_P(Ranks, SumsAndValuesTravelWhileTheCallerGoesOn) {
  for (const bool any_thread : {true, false}) {
    const auto messages =
        RunRanks(GetParam(),
                 [](Communicator& ranks) {
                   std::vector<std::vector<float>> buckets;
                   for (const std::int64_t size : {10000, 1, 4097, 2, 12289, 5000, 33, 8192}) {
                     auto& bucket = buckets.emplace_back(static_cast<std::size_t>(size));
                     for (std::int64_t i = 0; i < size; ++i) {
                       bucket[static_cast<std::size_t>(i)] = ValueOf(ranks.rank(), i);
                     }
                   }
                   for (auto& bucket : buckets) ranks.StartReduceScatter(bucket);
                   ranks.WaitAll();
                   for (auto& bucket : buckets) ranks.StartAllGather(bucket);
                   ranks.WaitAll();
                   for (const auto& bucket : buckets) {
                     for (std::size_t i = 0; i < bucket.size(); ++i) {
                       float sum = 0.0f;
                       for (int r = 0; r < ranks.size(); ++r)
                         sum += ValueOf(r, static_cast<int>(i));
                       ASSERT_EQ(bucket[i], sum) << i << " of " << bucket.size();
                     }
                   }
                 },
                 {.any_thread = any_thread, .delay = std::chrono::microseconds(300)});
    EXPECT_THAT(messages, Each(""));
  }
}

TEST_P(Ranks, Bf16OnTheWireRoundsWhatOthersSend) {
  RunRanks(GetParam(), [](Communicator& ranks) {
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = ValueOf(ranks.rank(), static_cast<int>(i));
    }
    ranks.StartReduceScatter(values, DType::kBF16);
    ranks.WaitAll();
    const RankShare own = ranks.Share(1000);
    for (std::int64_t i = own.first; i < own.last; ++i) {
      float sum = 0.0f, size = 0.0f;
      for (int r = 0; r < ranks.size(); ++r) {
        sum += ValueOf(r, i);
        size += std::abs(ValueOf(r, i));
      }
      ASSERT_NEAR(values[static_cast<std::size_t>(i)], sum, size / 256) << i;
    }
  });
}

// Wherever the others are: waiting for numbers, for operations, or at the end already.
TEST_P(Ranks, AFailureEndsAllOfThem) {
  for (const int kind : {0, 1, 2}) {
    std::atomic<int> told = 0;
    const int last = GetParam() - 1;
    const auto messages = RunRanks(GetParam(), [&](Communicator& ranks) {
      std::vector<float> values(50'000, 1.0f);
      if (kind == 1) ranks.StartReduceScatter(values);
      if (ranks.rank() == last) {
        try {
          Fail("the disk is full");
        } catch (const Error&) {
          const Communicator::Ending ending = ranks.Leave(1);
          EXPECT_EQ(ending.code, 1);
          EXPECT_TRUE(ending.speaks && ending.named);
          throw;
        }
      }
      if (kind == 0) ranks.Sum(1.0);
      if (kind == 1) {
        for (int i = 0; i < 8; ++i) ranks.StartReduceScatter(values);
        ranks.WaitAll();
      }
      const Communicator::Ending ending = ranks.Leave(0);
      EXPECT_EQ(ending.code, 1);
      EXPECT_FALSE(ending.speaks);
      ++told;
    });
    for (int r = 0; r < last; ++r) {
      EXPECT_THAT(messages[static_cast<std::size_t>(r)], kind == 2 ? "" : "another rank failed");
    }
    EXPECT_EQ(messages.back(), "the disk is full");
    EXPECT_EQ(told, kind == 2 ? last : 0);
  }
}

TEST_P(Ranks, WhatAllSayIsSaidOnce) {
  std::atomic<int> speakers = 0;
  RunRanks(GetParam(), [&](Communicator& ranks) {
    const Communicator::Ending ending = ranks.Leave(2);
    EXPECT_EQ(ending.code, 2);
    EXPECT_FALSE(ending.named);
    speakers += ending.speaks ? 1 : 0;
  });
  EXPECT_EQ(speakers, 1);
}

INSTANTIATE_TEST_SUITE_P(Communicator, Ranks, ::testing::Values(2, 3, 5));

}  // namespace
}  // namespace clearhead
