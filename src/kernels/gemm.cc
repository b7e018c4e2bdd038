// SPDX-License-Identifier: MIT
#include "kernels/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/threads.h"

// Of the OpenMP runtime that OpenBLAS is built with. Its header comes with the compiler, and not
// with every one.
extern "C" int omp_get_max_threads();
extern "C" void omp_set_num_threads(int count);

namespace clearhead {
namespace {

// While it lives, OpenBLAS computes on the calling thread. The number belongs to that thread alone,
// and what it was is put back: the caller's own use of OpenMP is not touched.
class OnThisThread {
 public:
  OnThisThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OnThisThread() { omp_set_num_threads(before_); }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  int before_;
};

// Parts of C that threads compute on their own, each a product of OpenBLAS on one thread. (Threads
// inside a product wait for each other's packed panels; parts wait only at the end. Beside other
// work on the machine the small products of a prompt took less than half as long in parts.)
struct Grid {
  std::int64_t rows = 1, columns = 1;
};

constexpr std::int64_t kUnit = 16;           // rows and columns are dealt out in multiples of it
constexpr double kSerialProducts = 1 << 18;  // up to here sharing out costs more than it saves

// Every part packs its own rows of A and columns of B: A is packed once per column of the grid and
// B once per row, so the best grid minimises columns m + rows n.
Grid GridOf(const GemmShape& s) {
  const double products =
      static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  Grid best;
  if (products <= kSerialProducts) return best;
  const std::int64_t row_units = (s.m + kUnit - 1) / kUnit;
  const std::int64_t column_units = (s.n + kUnit - 1) / kUnit;
  const std::int64_t parts = Threads();
  const auto cost = [&](const Grid& g) { return g.columns * s.m + g.rows * s.n; };
  for (std::int64_t rows = 1; rows <= std::min(parts, row_units); ++rows) {
    const Grid grid{rows, std::min(parts / rows, column_units)};
    const std::int64_t more = grid.rows * grid.columns - best.rows * best.columns;
    if (more > 0 || (more == 0 && cost(grid) < cost(best))) best = grid;
  }
  return best;
}

// Where part `index` of `parts` starts.
std::int64_t PartStart(std::int64_t extent, std::int64_t parts, std::int64_t index) {
  const std::int64_t units = (extent + kUnit - 1) / kUnit;
  return std::min(extent, units * index / parts * kUnit);
}

const float* RowOf(const GemmOperand& x, std::int64_t row) {
  return x.data + (x.op == Op::kNone ? row * x.stride : row);
}

const float* ColumnOf(const GemmOperand& x, std::int64_t column) {
  return x.data + (x.op == Op::kNone ? column : column * x.stride);
}

void Multiply(const GemmShape& shape, const GemmOperand& a, const GemmOperand& b, float* c,
              std::int64_t c_stride, bool accumulate) {
  const auto transpose = [](Op op) { return op == Op::kTranspose ? CblasTrans : CblasNoTrans; };
  const auto n = [](std::int64_t extent) { return static_cast<blasint>(extent); };
  const OnThisThread alone;
  cblas_sgemm(CblasRowMajor, transpose(a.op), transpose(b.op), n(shape.m), n(shape.n), n(shape.k),
              1.0f, a.data, n(a.stride), b.data, n(b.stride), accumulate ? 1.0f : 0.0f, c,
              n(c_stride));
}

}  // namespace

void Gemm(const GemmShape& shape, const GemmOperand& a, const GemmOperand& b, float* c,
          std::int64_t c_stride, bool accumulate) {
  constexpr std::int64_t kMax = std::numeric_limits<blasint>::max();
  Check(std::max({shape.m, shape.n, shape.k, a.stride, b.stride, c_stride}) <= kMax,
        "matrix extent beyond BLAS's integers");
  const Grid grid = GridOf(shape);
  ParallelFor(grid.rows * grid.columns, [&](std::int64_t part) {
    const std::int64_t row = part / grid.columns, column = part % grid.columns;
    const std::int64_t first_m = PartStart(shape.m, grid.rows, row);
    const std::int64_t first_n = PartStart(shape.n, grid.columns, column);
    const std::int64_t m = PartStart(shape.m, grid.rows, row + 1) - first_m;
    const std::int64_t n = PartStart(shape.n, grid.columns, column + 1) - first_n;
    Multiply({m, n, shape.k}, {RowOf(a, first_m), a.stride, a.op},
             {ColumnOf(b, first_n), b.stride, b.op}, c + first_m * c_stride + first_n, c_stride,
             accumulate);
  });
}

}  // namespace clearhead
