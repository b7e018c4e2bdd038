// SPDX-License-Identifier: MIT
// How far a measured value is from the bound that a test holds it to, relative to the bound. Tests
// of learning take another path on every CPU, so their bounds must be far away; what "far" means is
// stated beside each bound, recorded with the test and collected by scripts/margins.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace clearhead {

struct Bound {
  double limit;
  double stated;  // the margin that every CPU, seed and number of threads is to have
};

namespace internal {
inline void RecordMargin(const std::string& what, double value, const Bound& bound, double room) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const double margin = std::isfinite(room) ? room / std::abs(bound.limit) : -1.0;
  ::testing::Test::RecordProperty("margin " + what, fmt::format("{:.4f}", margin));
  fmt::print("margin {}.{}/{} {:.6g} {:.6g} {:.4f} {:.4f}\n", test->test_suite_name(), test->name(),
             what, value, bound.limit, margin, bound.stated);
}
}  // namespace internal

// `what` is one word.
inline void ExpectAtMost(const std::string& what, double value, const Bound& bound) {
  internal::RecordMargin(what, value, bound, bound.limit - value);
  EXPECT_LE(value, bound.limit) << what;
}

inline void ExpectAtLeast(const std::string& what, double value, const Bound& bound) {
  internal::RecordMargin(what, value, bound, value - bound.limit);
  EXPECT_GE(value, bound.limit) << what;
}

}  // namespace clearhead
