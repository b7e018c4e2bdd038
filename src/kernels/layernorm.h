// SPDX-License-Identifier: MIT
// Layer norm over the last axis.
//   mean = sum x / C,  scale = sqrt(sum (x-mean)^2 / C + epsilon),  y = (x - mean)/scale * weight +
//   bias
#pragma once

#include <cstdint>

namespace clearhead {

struct LayerNorm {
  const float* weight;  // [C]
  const float* bias;    // [C]
  std::int64_t width;   // C
  float epsilon;
};

// x, y [rows, C]; mean, scale [rows] are kept for backward (scale is what TransformerLens calls
// hook_scale). y may alias x.
void LayerNormForward(const LayerNorm& norm, std::int64_t rows, const float* x, float* y,
                      float* mean, float* scale);

// With n = (x - mean)/scale and g = dy * weight:
//   dx += (g - mean(g) - n * mean(g * n)) / scale       adds: the residual stream joins here
//   dweight += sum over rows of dy * n,  dbias += sum over rows of dy     (skipped when null)
void LayerNormBackward(const LayerNorm& norm, std::int64_t rows, const float* x, const float* mean,
                       const float* scale, const float* dy, float* dx, float* dweight,
                       float* dbias);

}  // namespace clearhead
