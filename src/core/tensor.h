// SPDX-License-Identifier: MIT
// Shapes and strided views of tensors of up to five axes. Views borrow; Buffer owns.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace clearhead {

// Extents of up to kMaxRank axes, outermost first. A scalar has rank 0 and one element.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) {
    Check(extents.size() <= kMaxRank, "more axes than a Shape holds");
    for (const std::int64_t extent : extents) extents_[rank_++] = extent;
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return extents_[axis]; }
  std::int64_t size() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= extents_[axis];
    return product;
  }
  void Append(std::int64_t extent) {
    Check(rank_ < kMaxRank, "more axes than a Shape holds");
    extents_[rank_++] = extent;
  }
  bool operator==(const Shape&) const = default;

 private:
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> extents_{};
};

inline std::string ToText(const Shape& shape) {
  std::string text = "[";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ",";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

// A strided view; element (i, j, ...) is data[i*stride[0] + j*stride[1] + ...].
template <typename T>
struct TensorView {
  T* data = nullptr;
  Shape shape;
  std::array<std::int64_t, Shape::kMaxRank> strides{};

  TensorView() = default;
  TensorView(T* first, const Shape& extents) : data(first), shape(extents) {  // contiguous
    std::int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      strides[axis] = stride;
      stride *= shape[axis];
    }
  }
  TensorView(T* first, const Shape& extents, std::initializer_list<std::int64_t> steps)
      : data(first), shape(extents) {
    Check(static_cast<int>(steps.size()) == extents.rank(), "one stride per axis");
    int axis = 0;
    for (const std::int64_t step : steps) strides[axis++] = step;
  }

  bool contiguous() const {
    std::int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      if (shape[axis] != 1 && strides[axis] != stride) return false;
      stride *= shape[axis];
    }
    return true;
  }
};

// Copies a view of any strides into a contiguous block.
template <typename T>
void CopyTo(const TensorView<T>& view, std::remove_const_t<T>* out) {
  const int rank = view.shape.rank();
  const std::int64_t inner = rank == 0 ? 1 : view.shape[rank - 1];
  const std::int64_t inner_stride = rank == 0 ? 1 : view.strides[rank - 1];
  if (view.shape.size() == 0) return;
  std::array<std::int64_t, Shape::kMaxRank> index{};
  while (true) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < rank - 1; ++axis) offset += index[axis] * view.strides[axis];
    for (std::int64_t i = 0; i < inner; ++i) *out++ = view.data[offset + i * inner_stride];
    int axis = rank - 2;
    while (axis >= 0 && ++index[axis] == view.shape[axis]) index[axis--] = 0;
    if (axis < 0) return;
  }
}

}  // namespace clearhead
