// SPDX-License-Identifier: MIT
// fp32 arrays as the library hands them out: a place, extents, and who keeps it alive. No copy is
// made anywhere; a copy of an Array points to the same values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace clearhead::api {

struct Array {
  float* data = nullptr;
  std::vector<std::int64_t> shape;  // outermost first; contiguous
  std::shared_ptr<const void> owner;

  std::int64_t size() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
};

}  // namespace clearhead::api
