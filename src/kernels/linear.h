// SPDX-License-Identifier: MIT
// A linear layer as GPT-2 stores it (Hugging Face's Conv1D): weight [in, out], y = x W + bias.
//
//   forward            y[r,out]    = x[r,in] W[in,out] + bias
//   backward, input    dx[r,in]    = dy[r,out] W^T
//   backward, weight   dW[in,out] += x^T dy,   dbias[out] += sum over rows of dy
//
// With packed weights the products run in bf16 on AMX tiles with fp32 sums; otherwise in fp32.
#pragma once

#include <cstdint>

namespace clearhead {

class PackedBf16;

struct Linear {
  const float* weight;  // [in, out]
  const float* bias;    // [out], or null
  std::int64_t in, out;
  const PackedBf16* packed = nullptr;             // W,   for forward
  const PackedBf16* packed_transposed = nullptr;  // W^T, for the input gradient
};

void LinearForward(const Linear& layer, std::int64_t rows, const float* x, float* y);

// Overwrites dx.
void LinearBackwardInput(const Linear& layer, std::int64_t rows, const float* dy, float* dx);

// Adds to dw and dbias. `scratch` holds dy packed for the tiles when the layer runs in bf16 (else
// null).
void LinearBackwardWeight(const Linear& layer, std::int64_t rows, const float* x, const float* dy,
                          PackedBf16* scratch, float* dw, float* dbias);

}  // namespace clearhead
