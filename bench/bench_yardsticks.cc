// SPDX-License-Identifier: MIT
#include "bench_yardsticks.h"

#include "core/error.h"
#include "core/threads.h"

#if CLEARHEAD_OPENBLAS
#include <cblas.h>
#endif
#if CLEARHEAD_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

namespace clearhead {

const bool kHaveOpenBlas = CLEARHEAD_OPENBLAS, kHaveDnnl = CLEARHEAD_DNNL;

#if CLEARHEAD_OPENBLAS
void OpenBlasGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
                  float* c) {
  const auto size = [](std::int64_t extent) { return static_cast<blasint>(extent); };
  openblas_set_num_threads(Threads());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size(m), size(n), size(k), 1.0f, a,
              size(k), b, size(n), 0.0f, c, size(n));
}
const char* OpenBlasCore() { return openblas_get_corename(); }
#else
void OpenBlasGemm(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*) {
  Fail("built without OpenBLAS");
}
const char* OpenBlasCore() { return ""; }
#endif

// oneDNN takes its threads from OpenMP: OMP_NUM_THREADS, else all cores.
void DnnlGemm(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
              float* c) {
#if CLEARHEAD_DNNL
  dnnl_sgemm('N', 'N', m, n, k, 1.0f, a, k, b, n, 0.0f, c, n);
#else
  (void)m, (void)n, (void)k, (void)a, (void)b, (void)c;
  Fail("built without oneDNN");
#endif
}

}  // namespace clearhead
