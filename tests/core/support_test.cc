// SPDX-License-Identifier: MIT
// The helpers that other tests trust.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "core/error.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::nanf("");

TEST(MaxAbsDifference, FindsTheLargest) {
  const std::vector<float> expected = {1, -2, 3};
  EXPECT_EQ(MaxAbsDifference(expected, expected), 0);
  EXPECT_EQ(MaxAbsDifference(std::vector<float>{1.5f, -2, 2}, expected), 1);
  EXPECT_THROW(MaxAbsDifference(std::vector<float>{1}, expected), std::invalid_argument);
}

TEST(MaxAbsDifference, NothingExcusesNaNsAndInfinities) {
  using Values = std::vector<float>;
  EXPECT_EQ(MaxAbsDifference(Values{kNaN, 0}, Values{0, 0}), kInfinity);
  EXPECT_EQ(MaxAbsDifference(Values{0, 0}, Values{kNaN, 0}), kInfinity);
  EXPECT_EQ(MaxAbsDifference(Values{kNaN, 5}, Values{kNaN, 0}), kInfinity);
  EXPECT_EQ(MaxAbsDifference(Values{kInfinity}, Values{1}), kInfinity);
  EXPECT_EQ(MaxAbsDifference(Values{kInfinity, 1}, Values{kInfinity, 1}), 0);
  EXPECT_EQ(MaxAbsDifference(Values{kInfinity}, Values{-kInfinity}), kInfinity);
}

TEST(MaxRelativeDifference, IsRelativeToTheLargestExpectedMagnitude) {
  using Values = std::vector<float>;
  EXPECT_DOUBLE_EQ(MaxRelativeDifference(Values{1, -3}, Values{1, -4}), 0.25);
  EXPECT_EQ(MaxRelativeDifference(Values{0, 0}, Values{0, 0}), 0);
  EXPECT_EQ(MaxRelativeDifference(Values{1e-30f}, Values{0}), kInfinity);
  EXPECT_EQ(MaxRelativeDifference(Values{}, Values{}), 0);
  EXPECT_FALSE(MaxRelativeDifference(Values{kNaN}, Values{1}) < 1e30);
}

TEST(ReadGolden, ReadsShapesAndValues) {
  const TemporaryFolder folder;
  const float values[] = {1, 2, 3, 4, 5, 6};
  WriteSafetensors(folder / "a", std::vector<TensorToWrite>{{"x", DType::kF32, {2, 3}, values},
                                                            {"y", DType::kBF16, {}, values}});
  const auto golden = ReadGolden(folder / "a");
  ASSERT_EQ(golden.size(), 2u);
  EXPECT_EQ(golden.at("x").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(golden.at("x").values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(golden.at("y").shape.empty());
  EXPECT_EQ(golden.at("y").values, std::vector<float>{1});
}

TEST(TemporaryFolder, IsRemovedWithItsContent) {
  std::filesystem::path path;
  {
    const TemporaryFolder folder, other;
    path = folder.path();
    EXPECT_NE(path, other.path());
    std::filesystem::create_directories(folder / "a/b");
    std::ofstream(folder / "a/b/file") << "x";
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace clearhead
