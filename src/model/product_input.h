// SPDX-License-Identifier: MIT
// Products that run head by head because a tap asks for it have no packed weights. Their inputs are
// rounded to bf16 here where the pass runs in bf16, and summed in fp32 as on the tiles: looking at
// a tap changes no precision.
#pragma once

#include "core/buffer.h"
#include "core/dtype.h"
#include "model/pass.h"

namespace clearhead {

class ProductInput {
 public:
  // Borrows `values` in fp32.
  ProductInput(const Pass& pass, const float* values, std::int64_t count) : data_(values) {
    if (pass.packed == nullptr) return;
    rounded_ = Buffer<float>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      rounded_[i] = BFloat16ToFloat(FloatToBFloat16(values[i]));
    }
    data_ = rounded_.data();
  }
  const float* data() const { return data_; }

 private:
  Buffer<float> rounded_;
  const float* data_;
};

}  // namespace clearhead
