// SPDX-License-Identifier: MIT
#include "core/kept_memory.h"

#include <cstdlib>
#include <utility>

namespace clearhead {
namespace {

std::shared_ptr<KeptMemory>& Current() {
  thread_local std::shared_ptr<KeptMemory> current;
  return current;
}

}  // namespace

KeptMemory::Block KeptMemory::Take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t best = blocks_.size();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    // A quarter more: a prompt that is a few tokens shorter finds the blocks of the longer one.
    const bool fits = blocks_[i].bytes >= bytes && blocks_[i].bytes - bytes <= bytes / 4;
    if (fits && (best == blocks_.size() || blocks_[i].bytes < blocks_[best].bytes)) best = i;
  }
  if (best == blocks_.size()) return {};
  const Block taken = blocks_[best];
  blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(best));
  kept_ -= taken.bytes;
  return taken;
}

void KeptMemory::Give(Block block) {
  const std::lock_guard lock(mutex_);
  if (block.bytes > limit_) {
    std::free(block.at);
    return;
  }
  while (kept_ + block.bytes > limit_) {
    std::free(blocks_.front().at);
    kept_ -= blocks_.front().bytes;
    blocks_.erase(blocks_.begin());
  }
  blocks_.push_back(block);
  kept_ += block.bytes;
}

void KeptMemory::Close() {
  const std::lock_guard lock(mutex_);
  for (const Block& block : blocks_) std::free(block.at);
  blocks_.clear();
  kept_ = limit_ = 0;
}

std::size_t KeptMemory::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

KeptMemoryScope::KeptMemoryScope(std::shared_ptr<KeptMemory> memory)
    : before_(std::exchange(Current(), std::move(memory))) {}

KeptMemoryScope::~KeptMemoryScope() { Current() = std::move(before_); }

const std::shared_ptr<KeptMemory>& CurrentMemory() { return Current(); }

}  // namespace clearhead
