// SPDX-License-Identifier: MIT
#include "core/buffer.h"

#include <sys/mman.h>

#include <cstdlib>

#include "core/error.h"

namespace clearhead::internal {

void* AllocateAligned(std::size_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  if (bytes == 0) return nullptr;
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
  return block;
}

void FreeAligned(void* block) { std::free(block); }

}  // namespace clearhead::internal
