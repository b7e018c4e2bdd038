// SPDX-License-Identifier: MIT
// Other libraries' fp32 products C[m,n] = A[m,k] B[k,n], on as many threads as ours: only to be
// measured beside them, where they are installed.
#pragma once

#include <cstdint>

namespace clearhead {

extern const bool kHaveOpenBlas, kHaveDnnl;

void OpenBlasGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                  float* c);
const char* OpenBlasCore();  // whose kernels it picked
void DnnlGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
              float* c);

}  // namespace clearhead
