// SPDX-License-Identifier: MIT
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace clearhead {
namespace {

TEST(Shape, RankSizeAndText) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ(ToText(Shape()), "[]");
  const Shape shape = {2, 3, 5, 7, 11};
  EXPECT_EQ(shape.rank(), 5);
  EXPECT_EQ(shape.size(), 2310);
  EXPECT_EQ(shape[3], 7);
  EXPECT_EQ(ToText(shape), "[2,3,5,7,11]");
  EXPECT_EQ((Shape{3, 0, 2}).size(), 0);
}

TEST(Shape, ComparesRankAndExtents) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
}

TEST(Shape, RefusesMoreAxesThanItHolds) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1}), std::logic_error);
  Shape shape = {1, 2, 3, 4};
  shape.Append(5);
  EXPECT_EQ(shape[4], 5);
  EXPECT_THROW(shape.Append(6), std::logic_error);
}

TEST(TensorView, ContiguousStrides) {
  float value = 0;
  const TensorView<float> view(&value, {2, 3, 5});
  EXPECT_EQ(view.strides[0], 15);
  EXPECT_EQ(view.strides[1], 5);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_TRUE(view.contiguous());
  EXPECT_TRUE(TensorView<float>(&value, Shape{}).contiguous());
  EXPECT_FALSE(TensorView<float>(&value, Shape{2, 3}, {1, 2}).contiguous());
  // The stride of an axis of one element is never used, so it does not matter.
  EXPECT_TRUE(TensorView<float>(&value, Shape{1, 3}, {99, 1}).contiguous());
  EXPECT_THROW(TensorView<float>(&value, Shape{2, 3}, {1}), std::logic_error);
}

// What CopyTo must give, by the definition of a view and nothing else.
std::vector<int> ByDefinition(const TensorView<const int>& view) {
  std::vector<int> values;
  const std::int64_t size = view.shape.size();
  for (std::int64_t flat = 0; flat < size; ++flat) {
    std::int64_t rest = flat, offset = 0;
    for (int axis = view.shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    values.push_back(view.data[offset]);
  }
  return values;
}

TEST(CopyTo, EveryRankAndOddStrides) {
  std::vector<int> block(20'000);
  std::iota(block.begin(), block.end(), 1);
  const int* const first = block.data();
  const TensorView<const int> views[] = {
      {first + 7, Shape{}},
      {first, {1}},
      {first, {13}, {3}},
      {first + 12, {13}, {-1}},
      {first, {5}, {0}},  // one value repeated
      {first, {3, 7}},
      {first, {7, 3}, {1, 7}},  // a transpose
      {first, {1, 1}, {5, 9}},
      {first, {2, 3, 5}, {97, 11, 2}},
      {first + 500, {2, 3, 5}, {-101, 30, -3}},
      {first, {2, 3, 5, 7}, {1, 2, 6, 30}},
      {first, {3, 1, 2, 1, 5}, {1000, 7, 333, 1, 17}},
      {first, {2, 3, 2, 3, 2}, {3001, 503, 101, 13, 3}},
  };
  for (const TensorView<const int>& view : views) {
    const std::vector<int> expected = ByDefinition(view);
    std::vector<int> copy(expected.size() + 1, -1);
    CopyTo(view, copy.data());
    EXPECT_EQ(copy.back(), -1) << "wrote past the end, shape " << ToText(view.shape);
    copy.pop_back();
    EXPECT_EQ(copy, expected) << ToText(view.shape);
  }
}

TEST(CopyTo, EmptyTouchesNothing) {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 3}, Shape{2, 0, 5}}) {
    int untouched = 42;
    CopyTo(TensorView<const int>(nullptr, shape), &untouched);
    EXPECT_EQ(untouched, 42) << ToText(shape);
  }
}

}  // namespace
}  // namespace clearhead
