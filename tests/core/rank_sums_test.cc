// SPDX-License-Identifier: MIT
// Sums over shared items have the bits of a plain loop over the items.
#include "core/rank_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/thread_ranks.h"

namespace clearhead {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kItems = 23;

// Of magnitudes so different that every other order of the sum gives other bits.
double ValueOf(std::int64_t item, std::int64_t i) {
  return std::sin(1.0 + static_cast<double>(item * 7 + i)) *
         std::pow(10.0, static_cast<double>((item * 5 + i) % 13));
}

std::vector<double> PlainSum(std::int64_t width) {
  std::vector<double> sums(static_cast<std::size_t>(width));
  for (std::int64_t item = 0; item < kItems; ++item) {
    for (std::int64_t i = 0; i < width; ++i) {
      sums[static_cast<std::size_t>(i)] += ValueOf(item, i);
    }
  }
  return sums;
}

// Parts of `size` items, the last with what is left.
std::vector<std::int64_t> Parts(std::int64_t size) {
  std::vector<std::int64_t> parts;
  for (std::int64_t first = 0; first < kItems; first += size) {
    parts.push_back(std::min(size, kItems - first));
  }
  return parts;
}

TEST(RankSums, HaveTheSameBitsForAnyRanksAndParts) {
  for (const std::int64_t width : {std::int64_t{1}, std::int64_t{2}, std::int64_t{11}}) {
    const std::vector<double> expected = PlainSum(width);
    for (const std::int64_t size : {1, 2, 5, 40}) {
      const std::vector<std::int64_t> parts = Parts(size);
      for (const int count : {1, 2, 3, 5}) {
        const auto messages = RunRanks(count, [&](Communicator& ranks) {
          std::int64_t made = 0;
          const std::vector<double> sums =
              SumInOrder(ranks, parts, width, [&](std::size_t part, std::span<double> values) {
                EXPECT_TRUE(ranks.Owns(part));
                EXPECT_THAT(values, Each(0.0));
                ASSERT_EQ(static_cast<std::int64_t>(values.size()), parts[part] * width);
                for (std::size_t n = 0; n < values.size(); ++n) {
                  const auto at = static_cast<std::int64_t>(n);
                  values[n] =
                      ValueOf(static_cast<std::int64_t>(part) * size + at / width, at % width);
                }
                made += parts[part];
              });
          EXPECT_EQ(sums, expected) << width << " " << size << " " << count;
          EXPECT_EQ(ranks.Sum(static_cast<double>(made)), kItems);
          EXPECT_LE(made, (kItems / (size * count) + 1) * size);  // nobody does it all
        });
        EXPECT_THAT(messages, Each(""));
      }
    }
  }
}

TEST(RankSums, OfNothing) {
  EXPECT_THAT(RunRanks(2,
                       [](Communicator& ranks) {
                         const MakePart never = [](std::size_t, std::span<double>) { FAIL(); };
                         EXPECT_EQ(SumInOrder(ranks, {}, 3, never), std::vector<double>(3));
                         EXPECT_TRUE(SumInOrder(ranks, Parts(5), 0, never).empty());
                         EXPECT_TRUE(GatherAll(ranks, {}).empty());
                       }),
              Each(""));
}

TEST(RankSums, ARankThatFailsEndsTheSumOfAll) {
  const auto messages = RunRanks(3, [](Communicator& ranks) {
    SumInOrder(ranks, Parts(2), 4, [&](std::size_t part, std::span<double>) {
      if (part == 7) Fail("part 7 cannot be made");
    });
    ADD_FAILURE() << "the sum came to an end";
  });
  EXPECT_EQ(messages[1], "part 7 cannot be made");
  EXPECT_EQ(messages[0], "another rank failed");
  EXPECT_EQ(messages[2], "another rank failed");
}

TEST(RankSums, GatherRunsOfAnyLength) {
  for (const int count : {1, 2, 4}) {
    std::vector<float> expected;
    for (int r = 0; r < count; ++r) {
      for (int i = 0; i < 3 * r; ++i) expected.push_back(static_cast<float>(10 * r + i));
    }
    const auto messages = RunRanks(count, [&](Communicator& ranks) {
      std::vector<float> mine(3 * static_cast<std::size_t>(ranks.rank()));
      std::iota(mine.begin(), mine.end(), static_cast<float>(10 * ranks.rank()));
      EXPECT_EQ(GatherAll(ranks, mine), expected);
    });
    EXPECT_THAT(messages, Each(""));
  }
}

}  // namespace
}  // namespace clearhead
