// SPDX-License-Identifier: MIT
// Sparse rows against plain loops in double, and their bits over numbers of threads.
#include "kernels/sparse_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random.Normal());
  return values;
}

// Rows with no entry, with one, with many; some columns without any.
SparseRows RandomRows(std::int64_t rows, std::int64_t columns, double share, std::uint64_t seed) {
  RandomStream random(seed);
  SparseRows result;
  for (std::int64_t r = 0; r < rows; ++r) {
    const double here = r % 3 == 0 ? 0.0 : r % 5 == 0 ? std::min(1.0, 4 * share) : share;
    for (std::int64_t f = 0; f < columns; ++f) {
      if (f % 7 == 3 || random.Uniform() >= here) continue;
      result.column.push_back(static_cast<std::int32_t>(f));
      result.value.push_back(static_cast<float>(random.Normal()));
    }
    result.begin.push_back(result.size());
  }
  return result;
}

void ExpectSame(const SparseRows& a, const SparseRows& b) {
  EXPECT_EQ(a.begin, b.begin);
  EXPECT_EQ(a.column, b.column);
  EXPECT_EQ(a.value, b.value);
}

class SparseRowsTest : public WithThreads {};
INSTANTIATE_TEST_SUITE_P(Threads, SparseRowsTest, testing::Values(1, 2, 3, 7));

TEST_P(SparseRowsTest, SelectAboveKeepsWhatLiesAbove) {
  for (const std::int64_t rows : {0, 1, 2, 33, 100}) {
    for (const std::int64_t columns : {1, 3, 8, 17, 64, 257}) {
      auto x = RandomValues(rows * columns, 1);
      auto thresholds = RandomValues(columns, 2);
      for (float& t : thresholds) t = std::abs(t);
      if (rows > 1) x[1] = thresholds[static_cast<std::size_t>(1 % columns)];  // equal is not above
      for (const float* threshold :
           std::initializer_list<const float*>{nullptr, thresholds.data()}) {
        SparseRows expected;
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t f = 0; f < columns; ++f) {
            const float value = x[static_cast<std::size_t>(r * columns + f)];
            if (!(value > (threshold == nullptr ? 0.0f : threshold[f]))) continue;
            expected.column.push_back(static_cast<std::int32_t>(f));
            expected.value.push_back(value);
          }
          expected.begin.push_back(expected.size());
        }
        SparseRows found = RandomRows(3, 5, 0.5, 9);  // what was in it before is gone
        SelectAbove(rows, columns, x.data(), threshold, found);
        ExpectSame(found, expected);
      }
    }
  }
}

TEST_P(SparseRowsTest, PartsOfAMatrixGiveTheEntriesOfTheWhole) {
  const std::int64_t rows = 37, columns = 100;
  const auto x = RandomValues(rows * columns, 1), thresholds = RandomValues(columns, 2);
  SparseRows expected, sorted = RandomRows(3, 5, 0.5, 9);  // what was in it before is gone
  SelectAbove(rows, columns, x.data(), thresholds.data(), expected);
  FoundEntries found;
  for (const std::int64_t first : {0, 48, 96}) {  // some columns of some rows at a time
    for (const std::int64_t row : {0, 16, 32}) {
      FindAbove({.first_row = row,
                 .rows = std::min<std::int64_t>(16, rows - row),
                 .first_column = first,
                 .columns = std::min<std::int64_t>(48, columns - first),
                 .x = x.data() + row * columns + first,
                 .stride = columns},
                thresholds.data(), found);
    }
  }
  SortByRow(found, rows, sorted);
  ExpectSame(sorted, expected);
}

TEST_P(SparseRowsTest, SelectLargestKeepsTheLargestWhateverTheirSign) {
  for (const std::int64_t rows : {0, 1, 2, 33}) {
    for (const std::int64_t columns : {1, 2, 17, 130}) {
      for (const std::int64_t k : {1, 2, 5, 17, 200}) {
        auto x = RandomValues(rows * columns, 3);
        for (float& v : x) v = std::round(2 * v) / 2 - 1;  // many equal values, many negative
        SparseRows expected;
        for (std::int64_t r = 0; r < rows; ++r) {
          const float* row = x.data() + r * columns;
          std::vector<std::int32_t> order(static_cast<std::size_t>(columns));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [row](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
          order.resize(static_cast<std::size_t>(std::min(k, columns)));
          std::sort(order.begin(), order.end());
          for (const std::int32_t f : order) {
            expected.column.push_back(f);
            expected.value.push_back(row[f]);
          }
          expected.begin.push_back(expected.size());
        }
        SparseRows found;
        SelectLargest(rows, columns, k, x.data(), found);
        ExpectSame(found, expected);
      }
    }
  }
}

TEST_P(SparseRowsTest, ByColumnHasTheSameEntries) {
  for (const std::int64_t rows : {0, 1, 40}) {
    const std::int64_t columns = 29;
    const SparseRows entries = RandomRows(rows, columns, 0.3, 4);
    SparseColumns sorted;
    ByColumn(entries, columns, sorted);
    ASSERT_EQ(sorted.begin.size(), static_cast<std::size_t>(columns + 1));
    ASSERT_EQ(sorted.begin.back(), entries.size());
    for (std::int64_t f = 0; f < columns; ++f) {
      for (std::int64_t i = sorted.begin[f]; i < sorted.begin[f + 1]; ++i) {
        const std::int64_t e = sorted.entry[i], r = sorted.row[i];
        EXPECT_EQ(entries.column[e], f);
        EXPECT_TRUE(entries.begin[r] <= e && e < entries.begin[r + 1]);
        if (i > sorted.begin[f]) {
          EXPECT_LT(sorted.row[i - 1], r);
        }
      }
    }
  }
}

struct Products {
  std::vector<float> y, d_value, d_table;
};

Products Multiply(const SparseRows& entries, std::int64_t columns, std::int64_t length,
                  std::int64_t stride, std::int64_t y_stride) {
  const auto table = RandomValues(columns * stride, 5);
  const auto dy = RandomValues(entries.rows() * y_stride, 6);
  Products p{RandomValues(entries.rows() * y_stride, 7),
             std::vector<float>(static_cast<std::size_t>(entries.size()), 99.0f),
             RandomValues(columns * stride, 8)};
  SparseColumns sorted;
  ByColumn(entries, columns, sorted);
  DecodeRows(entries, length, {table.data(), stride}, {p.y.data(), y_stride});
  for (std::int64_t f = 0; f < columns; ++f) {
    std::vector<std::int32_t> where(sorted.row.begin() + sorted.begin[f],
                                    sorted.row.begin() + sorted.begin[f + 1]);
    std::vector<float> a, d_a(where.size());
    for (std::int64_t i = sorted.begin[f]; i < sorted.begin[f + 1]; ++i) {
      a.push_back(entries.value[sorted.entry[i]]);
    }
    const float* row = table.data() + f * stride;
    float* d_row = p.d_table.data() + f * stride;
    if (f % 2 == 0) {  // apart, and over one reading
      DotsWithRows(where, length, row, {dy.data(), y_stride}, d_a.data());
      AddScaledRows(where, a.data(), length, {dy.data(), y_stride}, d_row);
    } else {
      DotsAndSums(where, length, row, a.data(), {dy.data(), y_stride}, d_a.data(), d_row);
    }
    for (std::size_t i = 0; i < d_a.size(); ++i) {
      p.d_value[sorted.entry[sorted.begin[f] + static_cast<std::int64_t>(i)]] = d_a[i];
    }
  }
  return p;
}

// Tolerance: as many roundings as terms are summed, each at most half of 1.2e-7 of the sum of their
// magnitudes.
TEST_P(SparseRowsTest, ProductsMatchDouble) {
  for (const std::int64_t rows : {0, 1, 5, 67}) {
    for (const std::int64_t columns : {1, 30, 101}) {
      for (const std::int64_t length : {1, 3, 16, 33, 200}) {
        const SparseRows entries = RandomRows(rows, columns, 0.2, 10);
        const std::int64_t stride = 2 * length + 1, y_stride = length + 3;
        const auto table = RandomValues(columns * stride, 5);
        const auto dy = RandomValues(rows * y_stride, 6);
        const auto y0 = RandomValues(rows * y_stride, 7), d0 = RandomValues(columns * stride, 8);
        std::vector<double> y(y0.begin(), y0.end()), y_size(y.size()), d(d0.begin(), d0.end()),
            d_size(d.size());
        for (std::size_t i = 0; i < y.size(); ++i) y_size[i] = std::abs(y[i]);
        for (std::size_t i = 0; i < d.size(); ++i) d_size[i] = std::abs(d[i]);
        const Products found = Multiply(entries, columns, length, stride, y_stride);
        const double step =
            1.2e-7 * 110;  // at most 101 entries a row, 67 a column, and what was there
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t e = entries.begin[r]; e < entries.begin[r + 1]; ++e) {
            const std::int64_t f = entries.column[e];
            double dot = 0, dot_size = 0;
            for (std::int64_t i = 0; i < length; ++i) {
              const double w = table[static_cast<std::size_t>(f * stride + i)];
              const double g = dy[static_cast<std::size_t>(r * y_stride + i)];
              const double a = entries.value[e];
              y[static_cast<std::size_t>(r * y_stride + i)] += a * w;
              y_size[static_cast<std::size_t>(r * y_stride + i)] += std::abs(a * w);
              d[static_cast<std::size_t>(f * stride + i)] += a * g;
              d_size[static_cast<std::size_t>(f * stride + i)] += std::abs(a * g);
              dot += w * g;
              dot_size += std::abs(w * g);
            }
            EXPECT_NEAR(found.d_value[e], dot, 1.2e-7 * 200 * dot_size + 1e-30);
          }
        }
        for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(found.y[i], y[i], step * y_size[i]);
        for (std::size_t i = 0; i < d.size(); ++i) {
          EXPECT_NEAR(found.d_table[i], d[i], step * d_size[i]);
        }
      }
    }
  }
}

TEST_P(SparseRowsTest, BitsDoNotDependOnThreads) {
  const SparseRows entries = RandomRows(200, 90, 0.2, 11);
  const Products here = Multiply(entries, 90, 77, 80, 77);
  const UseThreads one(1);
  const Products alone = Multiply(entries, 90, 77, 80, 77);
  EXPECT_EQ(here.y, alone.y);
  EXPECT_EQ(here.d_value, alone.d_value);
  EXPECT_EQ(here.d_table, alone.d_table);
}

}  // namespace
}  // namespace clearhead
