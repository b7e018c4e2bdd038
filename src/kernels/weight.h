// SPDX-License-Identifier: MIT
// A parameter where it is stored: fp32, or the 16 bits of a model's file, which are then widened
// piece by piece as they are used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/error.h"

namespace clearhead {

struct Weight {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;  // or kF16, kBF16

  Weight() = default;
  Weight(const std::byte* bytes, DType type) : data(bytes), dtype(type) {}
  explicit Weight(const float* values) : data(reinterpret_cast<const std::byte*>(values)) {}

  bool empty() const { return data == nullptr; }
  bool is_f32() const { return dtype == DType::kF32; }
  // The values in place. Norms and biases are always fp32; matrices may not be.
  const float* f32() const {
    Check(is_f32(), "16-bit weights are widened as they are used");
    return reinterpret_cast<const float*>(data);
  }
  Weight operator+(std::int64_t elements) const {
    return {empty() ? nullptr : data + elements * DTypeSize(dtype), dtype};
  }
  // Values first .. first + count - 1 as fp32.
  void CopyTo(std::int64_t first, std::int64_t count, float* out) const {
    ConvertToFloat(dtype, data + first * DTypeSize(dtype), count, out);
  }
};

}  // namespace clearhead
