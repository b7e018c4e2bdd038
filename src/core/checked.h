// SPDX-License-Identifier: MIT
// Products of numbers that come from outside: a batch times a context times ... may be more than 64
// bits hold, and would wrap to something small.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace clearhead {

// The product of factors from 0 on. Throws Error where one is negative or the product does not fit;
// `what` says what is counted, e.g. "batch x context".
std::int64_t CheckedProduct(std::string_view what, std::initializer_list<std::int64_t> factors);

}  // namespace clearhead
