// SPDX-License-Identifier: MIT
// Norms over vectors of `width` values.
//   layer norm   mean = sum x / C,  scale = sqrt(sum (x - mean)^2 / C + epsilon)
//   RMS norm     mean = 0,          scale = sqrt(sum x^2 / C + epsilon)
//   y = (x - mean) / scale * weight + bias
#pragma once

#include <cstdint>

namespace clearhead {

enum class NormKind { kLayer, kRms };

struct Norm {
  NormKind kind = NormKind::kLayer;
  const float* weight = nullptr;  // [C]; null: 1
  const float* bias = nullptr;    // [C]; null: 0
  std::int64_t width = 0;         // C
  float epsilon = 0.0f;
};

// Where the vectors are: `groups` of them side by side in each of `rows` rows.
struct NormRows {
  std::int64_t rows = 0;
  std::int64_t groups = 1;
  std::int64_t stride = 0;  // between rows
};

// x, y at `place`; mean, scale [rows * groups] are kept for backward (scale is what TransformerLens
// calls hook_scale). y may alias x.
void NormForward(const Norm& norm, const NormRows& place, const float* x, float* y, float* mean,
                 float* scale);

// With n = (x - mean)/scale and g = dy * weight:
//   layer norm   dx += (g - mean(g) - n * mean(g * n)) / scale
//   RMS norm     dx += (g           - n * mean(g * n)) / scale
// It adds: the residual stream joins here. dweight += sum over vectors of dy * n, dbias += sum of
// dy (each skipped when null).
void NormBackward(const Norm& norm, const NormRows& place, const float* x, const float* mean,
                  const float* scale, const float* dy, float* dx, float* dweight, float* dbias);

// The same on contiguous rows of one vector each.
inline void NormForward(const Norm& norm, std::int64_t rows, const float* x, float* y, float* mean,
                        float* scale) {
  NormForward(norm, {rows, 1, norm.width}, x, y, mean, scale);
}
inline void NormBackward(const Norm& norm, std::int64_t rows, const float* x, const float* mean,
                         const float* scale, const float* dy, float* dx, float* dweight,
                         float* dbias) {
  NormBackward(norm, {rows, 1, norm.width}, x, mean, scale, dy, dx, dweight, dbias);
}

}  // namespace clearhead
