// SPDX-License-Identifier: MIT
#include "core/kept_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/buffer.h"

namespace clearhead {
namespace {

constexpr std::int64_t kValues = 1 << 16;  // 256 KiB of floats
constexpr std::size_t kBytes = kValues * sizeof(float);

TEST(KeptMemory, HandsOutWhatCameBack) {
  const auto memory = std::make_shared<KeptMemory>(4 * kBytes);
  const KeptMemoryScope scope(memory);
  const float* first = nullptr;
  {
    const Buffer<float> buffer(kValues);
    first = buffer.data();
    EXPECT_EQ(memory->kept(), 0u);
  }
  EXPECT_EQ(memory->kept(), kBytes);
  const Buffer<float> shorter(kValues - kValues / 8);  // a prompt of fewer tokens
  EXPECT_EQ(shorter.data(), first);
  EXPECT_EQ(memory->kept(), 0u);
}

TEST(KeptMemory, GivesNoBlockThatIsTooSmallOrMuchTooLarge) {
  const auto memory = std::make_shared<KeptMemory>(16 * kBytes);
  const KeptMemoryScope scope(memory);
  { const Buffer<float> buffer(kValues); }
  const Buffer<float> larger(kValues + 1);
  EXPECT_EQ(memory->kept(), kBytes);
  const Buffer<float> half(kValues / 2);
  EXPECT_EQ(memory->kept(), kBytes);
}

TEST(KeptMemory, TakesTheBestOfThoseThatFit) {
  const auto memory = std::make_shared<KeptMemory>(16 * kBytes);
  const KeptMemoryScope scope(memory);
  const float* wanted = nullptr;
  {
    const Buffer<float> large(kValues + 4096), close(kValues + 1024);
    wanted = close.data();
  }
  const Buffer<float> buffer(kValues);
  EXPECT_EQ(buffer.data(), wanted);
}

TEST(KeptMemory, KeepsNoMoreThanItsLimitAndDropsTheOldest) {
  const auto memory = std::make_shared<KeptMemory>(2 * kBytes);
  const KeptMemoryScope scope(memory);
  std::optional<Buffer<float>> first(kValues), second(kValues), third(kValues);
  const float* const newest[] = {second->data(), third->data()};
  first.reset();
  second.reset();
  third.reset();
  EXPECT_EQ(memory->kept(), 2 * kBytes);
  const Buffer<float> again(kValues), and_again(kValues);
  EXPECT_EQ(again.data(), newest[0]);
  EXPECT_EQ(and_again.data(), newest[1]);
  { const Buffer<float> huge(4 * kValues); }  // beyond the limit: not kept, and nothing dropped
  EXPECT_EQ(memory->kept(), 0u);
}

TEST(KeptMemory, SmallBuffersAndThoseOutsideTheScopeAreNotItsOwn) {
  const auto memory = std::make_shared<KeptMemory>(4 * kBytes);
  std::optional<Buffer<float>> outside(kValues);
  {
    const KeptMemoryScope scope(memory);
    { const Buffer<float> small(100); }
    outside.reset();
    EXPECT_EQ(memory->kept(), 0u);
    {
      const KeptMemoryScope nobody(nullptr);
      { const Buffer<float> buffer(kValues); }
    }
    EXPECT_EQ(memory->kept(), 0u);
    EXPECT_EQ(CurrentMemory(), memory);
  }
  EXPECT_EQ(CurrentMemory(), nullptr);
}

TEST(KeptMemory, BuffersOutliveTheirScopeAndTheOwner) {
  std::weak_ptr<KeptMemory> watched;
  std::vector<Buffer<float>> buffers;
  {
    const auto memory = std::make_shared<KeptMemory>(4 * kBytes);
    watched = memory;
    const KeptMemoryScope scope(memory);
    { const Buffer<float> buffer(kValues); }
    for (int i = 0; i < 2; ++i) buffers.emplace_back(kValues);
    { const Buffer<float> buffer(kValues); }
    memory->Close();
    EXPECT_EQ(memory->kept(), 0u);
  }
  EXPECT_FALSE(watched.expired());
  buffers[0][kValues - 1] = 1;
  Buffer<float> moved = std::move(buffers[0]);
  moved[0] = 2;
  buffers.clear();
  EXPECT_FALSE(watched.expired());
  moved = {};  // the last one: nothing is kept for nobody
  EXPECT_TRUE(watched.expired());
}

TEST(KeptMemory, BlocksComeBackFromAnyThread) {
  const auto memory = std::make_shared<KeptMemory>(8 * kBytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const KeptMemoryScope scope(memory);
      for (int i = 0; i < 50; ++i) {
        Buffer<float> buffer(kValues);
        buffer[0] = buffer[kValues - 1] = static_cast<float>(i);
        std::thread([gone = std::move(buffer)] {}).join();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(memory->kept(), 0u);
  EXPECT_LE(memory->kept(), 4 * kBytes);
}

}  // namespace
}  // namespace clearhead
