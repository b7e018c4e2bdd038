// SPDX-License-Identifier: MIT
#include "core/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "core/error.h"

namespace clearhead::internal {

namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Smaller ones the C library keeps by itself.
constexpr std::size_t kLeastKept = std::size_t{1} << 16;

}  // namespace

std::unique_ptr<void, FreeBlock> AllocateAligned(std::int64_t count, std::size_t size_of_each) {
  std::size_t bytes = 0;
  if (count < 0) Fail("a block of {} values was asked for; at least 0 are expected", count);
  if (__builtin_mul_overflow(static_cast<std::size_t>(count), size_of_each, &bytes) ||
      bytes > static_cast<std::size_t>(PTRDIFF_MAX)) {
    Fail(
        "not enough memory for a block of {} values; use a shorter context, a smaller batch or "
        "fewer taps",
        count);
  }
  if (bytes == 0) return nullptr;
  const std::shared_ptr<KeptMemory> home = bytes < kLeastKept ? nullptr : CurrentMemory();
  if (home) {
    if (const KeptMemory::Block kept = home->Take(bytes); kept.at != nullptr) {
      return {kept.at, {home, kept.bytes}};
    }
  }
  const std::size_t alignment = bytes >= 2 * kHugePage ? kHugePage : 64;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* block = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (block == nullptr) {
    Fail(
        "not enough memory for a block of {:.1f} MB; use a shorter context, a smaller batch or "
        "fewer taps",
        static_cast<double>(bytes) / 1e6);
  }
  if (alignment == kHugePage) ::madvise(block, rounded, MADV_HUGEPAGE);
  return {block, {home, rounded}};
}

void FreeBlock::operator()(void* block) const {
  if (home) {
    home->Give({block, bytes});
  } else {
    std::free(block);
  }
}

}  // namespace clearhead::internal
