// SPDX-License-Identifier: MIT
// Matrix and vector products against sums in double.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "core/random.h"
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
constexpr Extents kExtents[] = {{1, 1, 1},    {1, 7, 3},   {5, 1, 9},
                                {17, 33, 65}, {3, 129, 8}, {64, 50, 127}};

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

// Many threads at once, each with products of its own one upon the other: a BLAS without locks
// around its buffers mixes them up. (Debian's serial build does, with OPENBLAS_CORETYPE=Haswell in
// 4 of 100.)
TEST(Gemm, ManyThreadsMultiplyAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      const auto a = RandomValues(100 * 100, static_cast<std::uint64_t>(t)),
                 b = RandomValues(100 * 100, static_cast<std::uint64_t>(t + 50));
      std::vector<float> c(100 * 100);
      for (std::int64_t round = 0; round < 20000; ++round) {
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

TEST(MatVec, BothLayoutsMatchDouble) {
  for (const Extents e : kExtents) {
    const auto x = RandomValues(e.k, 4), w = RandomValues(e.k * e.n, 5),
               bias = RandomValues(e.n, 6);
    std::vector<float> y(static_cast<std::size_t>(e.n)), plain(y.size()), transposed(y.size());
    MatVec(e.k, e.n, x.data(), w.data(), bias.data(), y.data());
    MatVec(e.k, e.n, x.data(), w.data(), nullptr, plain.data());
    MatVecT(e.n, e.k, w.data(), x.data(), transposed.data());
    for (std::int64_t j = 0; j < e.n; ++j) {
      double sum = 0, magnitude = 0, sum_t = 0, magnitude_t = 0;
      for (std::int64_t l = 0; l < e.k; ++l) {
        const double xl = x[static_cast<std::size_t>(l)];
        const double term = xl * w[static_cast<std::size_t>(l * e.n + j)];
        const double term_t = xl * w[static_cast<std::size_t>(j * e.k + l)];
        sum += term;
        magnitude += std::abs(term);
        sum_t += term_t;
        magnitude_t += std::abs(term_t);
      }
      const auto at = static_cast<std::size_t>(j);
      ExpectProduct(plain[at], sum, magnitude, e.k);
      ExpectProduct(y[at], sum + bias[at], magnitude + std::abs(bias[at]), e.k + 1);
      ExpectProduct(transposed[at], sum_t, magnitude_t, e.k);
    }
  }
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
