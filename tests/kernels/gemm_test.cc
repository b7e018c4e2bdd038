// SPDX-License-Identifier: MIT
// Matrix and vector products against sums in double.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernels/gemm_by_panels.h"
#include "kernels/linear.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random.Normal());
  return values;
}

// |fast - exact| <= (k + 2) * eps * sum |a b|: one rounding per step of the sum.
void ExpectProduct(float fast, double exact, double magnitude, std::int64_t k) {
  EXPECT_LE(std::abs(fast - exact), static_cast<double>(k + 2) * 0x1p-24 * magnitude + 1e-30);
}

struct Extents {
  std::int64_t m, n, k;
};
// The last four are shared out among threads, in parts along rows, columns and both.
constexpr Extents kProducts[] = {{1, 1, 1},     {17, 33, 65},  {3, 129, 8},  {64, 50, 127},
                                 {530, 18, 30}, {19, 515, 29}, {131, 77, 53}};

class GemmThreads : public WithThreads {};

TEST_P(GemmThreads, MatchesDoubleInAllLayouts) {
  for (const Extents e : kProducts) {
    for (const Op op_a : {Op::kNone, Op::kTranspose}) {
      for (const Op op_b : {Op::kNone, Op::kTranspose}) {
        for (const bool accumulate : {false, true}) {
          const std::int64_t lda = (op_a == Op::kNone ? e.k : e.m) + 3;
          const std::int64_t ldb = (op_b == Op::kNone ? e.n : e.k) + 2;
          const auto a = RandomValues((op_a == Op::kNone ? e.m : e.k) * lda, 1);
          const auto b = RandomValues((op_b == Op::kNone ? e.k : e.n) * ldb, 2);
          const auto start = RandomValues(e.m * (e.n + 1), 3);
          auto c = start;
          Gemm({e.m, e.n, e.k}, {a.data(), lda, op_a}, {b.data(), ldb, op_b}, c.data(), e.n + 1,
               accumulate);
          for (std::int64_t i = 0; i < e.m; ++i) {
            for (std::int64_t j = 0; j < e.n; ++j) {
              const auto at = static_cast<std::size_t>(i * (e.n + 1) + j);
              double sum = accumulate ? start[at] : 0.0, magnitude = std::abs(sum);
              for (std::int64_t l = 0; l < e.k; ++l) {
                const double x =
                    a[static_cast<std::size_t>(op_a == Op::kNone ? i * lda + l : l * lda + i)];
                const double y =
                    b[static_cast<std::size_t>(op_b == Op::kNone ? l * ldb + j : j * ldb + l)];
                sum += x * y;
                magnitude += std::abs(x * y);
              }
              ExpectProduct(c[at], sum, magnitude, e.k + 1);
            }
            if (i + 1 < e.m) {  // the gap between rows is nobody's to write
              const auto gap = static_cast<std::size_t>(i * (e.n + 1) + e.n);
              EXPECT_EQ(c[gap], start[gap]);
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, GemmThreads, testing::Values(1, 2, 3, 4, 7));

// Many threads at once, each with products of its own one upon the other: scratch must be each
// thread's own.
TEST(Gemm, ManyThreadsMultiplyAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      const auto a = RandomValues(100 * 100, static_cast<std::uint64_t>(t)),
                 b = RandomValues(100 * 100, static_cast<std::uint64_t>(t + 50));
      std::vector<float> c(100 * 100);
      for (std::int64_t round = 0; round < 2000; ++round) {
        const std::int64_t m = 16 + (7 * round + t) % 20, n = 16 + 13 * round % 20;
        const std::int64_t k = 16 + 11 * round % (round % 100 == 0 ? 80 : 20);
        Gemm({m, n, k}, {a.data(), m, Op::kTranspose}, {b.data(), n}, c.data(), n, false);
        const std::int64_t i = round % m, j = round / 3 % n;
        double sum = 0, magnitude = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const double term = static_cast<double>(a[static_cast<std::size_t>(l * m + i)]) *
                              b[static_cast<std::size_t>(l * n + j)];
          sum += term;
          magnitude += std::abs(term);
        }
        const double error = std::abs(c[static_cast<std::size_t>(i * n + j)] - sum);
        wrong += error > static_cast<double>(k + 2) * 0x1p-24 * magnitude;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A matrix in a type, stored row by row with a gap behind each.
struct Stored {
  std::vector<std::byte> bytes;
  std::int64_t stride;
  DType dtype;
  Weight weight() const { return {bytes.data(), dtype}; }
  std::vector<float> Widened() const {
    std::vector<float> values(bytes.size() / static_cast<std::size_t>(DTypeSize(dtype)));
    weight().CopyTo(0, static_cast<std::int64_t>(values.size()), values.data());
    return values;
  }
};
Stored StoreAs(DType dtype, std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Stored stored{{}, columns + 5, dtype};
  const auto values = RandomValues(rows * stored.stride, seed);
  stored.bytes.resize(values.size() * static_cast<std::size_t>(DTypeSize(dtype)));
  ConvertFromFloat(values.data(), rows * stored.stride, dtype, stored.bytes.data());
  return stored;
}

class PackedProducts : public testing::TestWithParam<DType> {};

// Packed or not, with any start: within rounding of double, and the same bits as each other, as on
// other threads and as every row by itself.
TEST_P(PackedProducts, MatchDoubleAndHaveTheBitsOfEveryOtherWay) {
  constexpr Extents kShapes[] = {{1, 1, 1},     {1, 50, 300},  {3, 48, 128},  {8, 97, 129},
                                 {9, 16, 257},  {40, 31, 500}, {70, 200, 64}, {2, 5, 0},
                                 {5, 33, 2100}, {30, 60, 4000}};
  for (const Extents e : kShapes) {
    for (const Op op : {Op::kNone, Op::kTranspose}) {
      const bool plain = op == Op::kNone;
      const Stored b = StoreAs(GetParam(), plain ? e.k : e.n, plain ? e.n : e.k, 7);
      const auto a = RandomValues(e.m * (e.k + 1), 8), bias = RandomValues(e.n, 9);
      PackedPanels packed;
      packed.Pack({b.weight(), b.stride, op}, e.k, e.n);
      const std::vector<float> before = RandomValues(e.m * e.n, 10), wide = b.Widened();
      std::vector<double> exact(before.size()), magnitude(before.size());
      for (std::int64_t i = 0; i < e.m; ++i) {
        for (std::int64_t j = 0; j < e.n; ++j) {
          const auto at = static_cast<std::size_t>(i * e.n + j);
          for (std::int64_t l = 0; l < e.k; ++l) {
            const double x = a[static_cast<std::size_t>(i * (e.k + 1) + l)];
            const double y =
                wide[static_cast<std::size_t>(plain ? l * b.stride + j : j * b.stride + l)];
            exact[at] += x * y;
            magnitude[at] += std::abs(x * y);
          }
        }
      }
      for (const int start : {0, 1, 2}) {  // nothing, C, a bias
        const auto output = [&](std::vector<float>& c, std::int64_t row) {
          return GemmOutput{.c = c.data() + row * e.n,
                            .stride = e.n,
                            .accumulate = start == 1,
                            .bias = start == 2 ? bias.data() : nullptr};
        };
        std::vector<float> once = before, of_packed = before, by_row = before, threaded = before;
        const GemmOperand rows{a.data(), e.k + 1};
        Gemm({e.m, e.n, e.k}, rows, {b.weight(), b.stride, op}, output(once, 0));
        Gemm(e.m, rows, packed, output(of_packed, 0));
        for (std::int64_t r = 0; r < e.m; ++r) {
          Gemm(1, {a.data() + r * (e.k + 1), e.k + 1}, packed, output(by_row, r));
        }
        {
          ThreadPool pool(3);
          const ThreadScope scope(&pool);
          Gemm(e.m, rows, packed, output(threaded, 0));
        }
        EXPECT_EQ(once, of_packed);
        EXPECT_EQ(once, by_row);
        EXPECT_EQ(once, threaded);
        for (std::size_t at = 0; at < once.size(); ++at) {
          const double from = start == 1   ? before[at]
                              : start == 2 ? bias[at % static_cast<std::size_t>(e.n)]
                                           : 0.0;
          ExpectProduct(once[at], from + exact[at], std::abs(from) + magnitude[at], e.k + 1);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PackedProducts,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& type) { return std::string(DTypeName(type.param)); });

// Handed over part by part, C has the bits of the C that is written, each element once and a row's
// columns in ascending order.
TEST(Gemm, ByPanelsIsTheSameProduct) {
  constexpr Extents kShapes[] = {
      {1, 5, 3}, {40, 100, 300}, {600, 97, 256}, {150, 50, 4100}, {3, 5, 0}};
  for (const Extents e : kShapes) {
    const auto a = RandomValues(e.m * e.k, 1), b = RandomValues(e.k * e.n, 2);
    PackedPanels packed;
    packed.Pack({Weight(b.data()), e.n}, e.k, e.n);
    std::vector<float> written(static_cast<std::size_t>(e.m * e.n)), seen(written.size(), -1.0f);
    Gemm(e.m, {a.data(), e.k}, packed, {.c = written.data(), .stride = e.n});
    std::vector<std::int64_t> columns(static_cast<std::size_t>(e.m));  // seen of each row
    GemmByPanels(e.m, {a.data(), e.k}, packed, [&](const FinishedPanel& p) {
      for (std::int64_t r = 0; r < p.rows; ++r) {
        const std::int64_t row = p.first_row + r;
        EXPECT_EQ(columns[static_cast<std::size_t>(row)], p.first_column);
        columns[static_cast<std::size_t>(row)] += p.columns;
        std::copy_n(p.values + r * p.stride, p.columns, seen.begin() + row * e.n + p.first_column);
      }
    });
    EXPECT_EQ(seen, written);
    EXPECT_EQ(columns, std::vector<std::int64_t>(columns.size(), e.n));
  }
}

TEST(Gemm, PaddingNeverReachesC) {
  // Infinite rows meet the zeros that fill a panel up, NaN columns the rows beside them.
  std::vector<float> a(9 * 4, std::numeric_limits<float>::infinity()), b(4 * 50, 1.0f);
  std::vector<float> c(9 * 50);
  Gemm({9, 50, 4}, {a.data(), 4}, {b.data(), 50}, c.data(), 50, false);
  for (const float value : c) EXPECT_EQ(value, std::numeric_limits<float>::infinity());
  b[49] = std::numeric_limits<float>::quiet_NaN();
  Gemm({9, 50, 4}, {a.data(), 4}, {b.data(), 50}, c.data(), 50, false);
  for (std::size_t i = 0; i < c.size(); ++i) EXPECT_EQ(std::isnan(c[i]), i % 50 == 49);
}

TEST(Linear, BackwardIsTheTransposeOfForward) {
  // <dy, x W> = <dy W^T, x> and d/dW <dy, x W> = x^T dy, checked entry by entry.
  const std::int64_t R = 9, in = 13, out = 21;
  const auto x = RandomValues(R * in, 1), w = RandomValues(in * out, 2),
             bias = RandomValues(out, 3);
  const auto dy = RandomValues(R * out, 4);
  const Linear layer = MakeLinear(Weight(w.data()), bias.data(), in, out, Order::kInOut);
  std::vector<float> dx(static_cast<std::size_t>(R * in)), dw(w.size(), 1.0f),
      db(bias.size(), 2.0f);
  LinearBackwardInput(layer, R, dy.data(), dx.data());
  LinearBackwardWeight(layer, R, x.data(), dy.data(), nullptr, dw.data(), db.data());
  for (std::int64_t r = 0; r < R; ++r) {
    for (std::int64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (std::int64_t o = 0; o < out; ++o) {
        sum += static_cast<double>(dy[static_cast<std::size_t>(r * out + o)]) *
               w[static_cast<std::size_t>(i * out + o)];
      }
      EXPECT_NEAR(dx[static_cast<std::size_t>(r * in + i)], sum, 1e-4);
    }
  }
  for (std::int64_t o = 0; o < out; ++o) {
    double bias_sum = 2.0;
    for (std::int64_t r = 0; r < R; ++r) bias_sum += dy[static_cast<std::size_t>(r * out + o)];
    EXPECT_NEAR(db[static_cast<std::size_t>(o)], bias_sum, 1e-5);
    for (std::int64_t i = 0; i < in; ++i) {
      double sum = 1.0;  // gradients add to what is there
      for (std::int64_t r = 0; r < R; ++r) {
        sum += static_cast<double>(x[static_cast<std::size_t>(r * in + i)]) *
               dy[static_cast<std::size_t>(r * out + o)];
      }
      EXPECT_NEAR(dw[static_cast<std::size_t>(i * out + o)], sum, 1e-4);
    }
  }
}

}  // namespace
}  // namespace clearhead
