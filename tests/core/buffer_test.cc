// SPDX-License-Identifier: MIT
#include "core/buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "core/error.h"

namespace clearhead {
namespace {

TEST(Buffer, IsAlignedAndWritableAtEverySize) {
  // 1,048,579 floats are over two huge pages, where the allocation changes.
  for (const std::int64_t size : {1, 2, 3, 15, 16, 17, 97, 4099, 1 << 20, 1'048'579}) {
    Buffer<float> buffer(size);
    ASSERT_EQ(buffer.size(), size);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u) << size;
    std::iota(buffer.begin(), buffer.end(), 0.0f);
    EXPECT_EQ(buffer[0], 0.0f);
    EXPECT_EQ(buffer[size - 1], static_cast<float>(size - 1));
    EXPECT_EQ(buffer.span().size(), static_cast<std::size_t>(size));
  }
}

TEST(Buffer, EmptyHasNoElements) {
  const Buffer<double> none;
  EXPECT_EQ(none.size(), 0);
  EXPECT_EQ(none.begin(), none.end());
  const Buffer<double> zero(0);
  EXPECT_EQ(zero.size(), 0);
  EXPECT_TRUE(zero.span().empty());
}

TEST(Buffer, RefusesSizesThatNoMemoryHolds) {
  for (const std::int64_t size :
       {std::int64_t{-1}, std::int64_t{1} << 62, (std::int64_t{1} << 62) + 3,
        std::numeric_limits<std::int64_t>::max()}) {
    try {
      const Buffer<float> buffer(size);
      FAIL() << size << " values were given " << buffer.size();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(std::to_string(size)));
    }
  }
}

TEST(Buffer, MovesWithoutCopying) {
  Buffer<int> first(5);
  std::iota(first.begin(), first.end(), 10);
  const int* const data = first.data();
  Buffer<int> second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second[4], 14);
  first = Buffer<int>(3);  // a moved-from buffer may be assigned again
  first[2] = 7;
  EXPECT_EQ(first[2], 7);
}

TEST(Buffer, ImpossibleSizeIsAnErrorForTheUser) {
  std::vector<std::int64_t> sizes = {(std::int64_t{1} << 62) - 1};  // rounding up overflows
#ifndef __SANITIZE_ADDRESS__  // whose allocator ends the program instead of saying no
  sizes.push_back(std::int64_t{1} << 60);
#endif
  for (const std::int64_t size : sizes) {
    EXPECT_THAT([&] { Buffer<float> buffer(size); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("not enough memory")));
  }
}

}  // namespace
}  // namespace clearhead
