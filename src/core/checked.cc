// SPDX-License-Identifier: MIT
#include "core/checked.h"

#include <fmt/ranges.h>

#include "core/error.h"

namespace clearhead {

std::int64_t CheckedProduct(std::string_view what, std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool fits = true;
  for (const std::int64_t factor : factors) {
    if (factor < 0) Fail("{}: {} is negative", what, factor);
    fits = fits && !__builtin_mul_overflow(product, factor, &product);
  }
  if (!fits) {
    for (const std::int64_t factor : factors) {
      if (factor == 0) return 0;
    }
    Fail("{} = {} is too large to count; use smaller numbers", what, fmt::join(factors, " x "));
  }
  return product;
}

}  // namespace clearhead
