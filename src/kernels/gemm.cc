#include "kernels/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace clearhead {

void Gemm(const GemmShape& shape, const GemmOperand& a, const GemmOperand& b, float* c,
          std::int64_t c_stride, bool accumulate) {
  constexpr std::int64_t kMax = std::numeric_limits<blasint>::max();
  Check(std::max({shape.m, shape.n, shape.k, a.stride, b.stride, c_stride}) <= kMax,
        "matrix extent beyond BLAS's integers");
  const auto transpose = [](Op op) { return op == Op::kTranspose ? CblasTrans : CblasNoTrans; };
  const auto n = [](std::int64_t extent) { return static_cast<blasint>(extent); };
  cblas_sgemm(CblasRowMajor, transpose(a.op), transpose(b.op), n(shape.m), n(shape.n), n(shape.k),
              1.0f, a.data, n(a.stride), b.data, n(b.stride), accumulate ? 1.0f : 0.0f, c,
              n(c_stride));
}

}  // namespace clearhead
