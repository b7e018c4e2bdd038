// SPDX-License-Identifier: MIT
// Memory for work that is done again and again. A C library gives large blocks back to the system
// when they are freed, and the next run pays a page fault for every 4 KiB of them again: a quarter
// of the time of a short prompt. Buffers made within a KeptMemoryScope come back to their
// KeptMemory instead, which hands them out again.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace clearhead {

class KeptMemory {
 public:
  // Keeps at most `limit` bytes that nobody uses; the longest unused go first.
  explicit KeptMemory(std::size_t limit) : limit_(limit) {}
  ~KeptMemory() { Close(); }
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

  struct Block {
    void* at = nullptr;
    std::size_t bytes = 0;
  };

  // The smallest kept block of at least `bytes` and hardly more; empty if there is none.
  Block Take(std::size_t bytes);

  // Takes a block of std::aligned_alloc, from any thread.
  void Give(Block block);

  // Frees what is kept, and from now on what is given. Blocks may outlive their owner.
  void Close();

  std::size_t kept() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;  // the oldest first
  std::size_t kept_ = 0, limit_;
};

// While it lives, buffers that the calling thread makes are of `memory`; then of the one from
// before. Null: of nobody.
class KeptMemoryScope {
 public:
  explicit KeptMemoryScope(std::shared_ptr<KeptMemory> memory);
  ~KeptMemoryScope();
  KeptMemoryScope(const KeptMemoryScope&) = delete;
  KeptMemoryScope& operator=(const KeptMemoryScope&) = delete;

 private:
  std::shared_ptr<KeptMemory> before_;
};

const std::shared_ptr<KeptMemory>& CurrentMemory();

}  // namespace clearhead
