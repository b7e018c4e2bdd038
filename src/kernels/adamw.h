// SPDX-License-Identifier: MIT
// AdamW (Loshchilov and Hutter), one pass over memory.
//   g  = grad_scale * grad
//   m  = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   w  = w (1 - lr decay) - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
#pragma once

#include <cstdint>

namespace clearhead {

struct AdamW {
  float lr = 1e-3f;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float decay = 0.0f;
};

// One step over `count` elements; t counts from 1. The gradients are set to 0 on the way, ready for
// the next step: a pass of its own over them would cost as much memory traffic again.
void AdamWStep(const AdamW& options, std::int64_t t, float grad_scale, std::int64_t count,
               float* weights, float* gradients, float* first_moment, float* second_moment);

// Sum of squares in double, summed in blocks of a fixed size: the same for any number of threads.
double SumOfSquares(std::int64_t count, const float* values);

}  // namespace clearhead
