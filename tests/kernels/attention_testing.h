// SPDX-License-Identifier: MIT
// Random attention problems and the plain reference run on them, for the attention tests.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/attention.h"
#include "kernels/reference/attention.h"

namespace clearhead {

using DoubleMatrix = reference::Matrix<double>;

inline std::vector<float> RandomNormal(std::int64_t size, std::uint64_t seed, double scale = 1.0) {
  std::vector<float> values(static_cast<std::size_t>(size));
  RandomStream random(seed);
  for (float& value : values) value = static_cast<float>(scale * random.Normal());
  return values;
}

struct AttentionSize {
  std::int64_t batch, heads, queries, keys, head_size;
};

inline std::string ToText(const AttentionSize& size) {
  return fmt::format("b{}h{}q{}k{}d{}", size.batch, size.heads, size.queries, size.keys,
                     size.head_size);
}

// One more than the model needs of everything: rows, sequences and the start are all off any round
// number, so that a kernel that assumes a layout fails.
class StridedRows {
 public:
  StridedRows(std::int64_t batch, std::int64_t rows, std::int64_t columns, std::uint64_t seed,
              double scale = 1.0)
      : row_stride_(columns + 3),
        batch_stride_(rows * row_stride_ + 5),
        values_(RandomNormal(1 + batch * batch_stride_, seed, scale)) {}

  HeadRows<float> rows() { return {values_.data() + 1, row_stride_, batch_stride_}; }
  HeadRows<const float> rows() const { return {values_.data() + 1, row_stride_, batch_stride_}; }
  // All of the memory, gaps included.
  const std::vector<float>& values() const { return values_; }

 private:
  std::int64_t row_stride_, batch_stride_;
  std::vector<float> values_;
};

// Inputs, outputs and gradients of one problem.
struct AttentionProblem {
  explicit AttentionProblem(const AttentionSize& size, double score_scale = 1.0,
                            std::uint64_t seed = 1)
      : shape{.batch = size.batch,
              .heads = size.heads,
              .queries = size.queries,
              .keys = size.keys,
              .head_size = size.head_size,
              .scale =
                  static_cast<float>(score_scale / std::sqrt(static_cast<double>(size.head_size)))},
        q(size.batch, size.queries, size.heads * size.head_size, 10 * seed + 1),
        k(size.batch, size.keys, size.heads * size.head_size, 10 * seed + 2),
        v(size.batch, size.keys, size.heads * size.head_size, 10 * seed + 3),
        dz(size.batch, size.queries, size.heads * size.head_size, 10 * seed + 4),
        z(size.batch, size.queries, size.heads * size.head_size, 10 * seed + 5),
        dq(size.batch, size.queries, size.heads * size.head_size, 10 * seed + 6),
        dk(size.batch, size.keys, size.heads * size.head_size, 10 * seed + 7),
        dv(size.batch, size.keys, size.heads * size.head_size, 10 * seed + 8),
        log_sum_exp(static_cast<std::size_t>(size.batch * size.heads * size.queries)) {}

  AttentionInput input() const { return {.q = q.rows(), .k = k.rows(), .v = v.rows()}; }
  AttentionOutput output() const { return {.z = z.rows(), .log_sum_exp = log_sum_exp.data()}; }
  AttentionGradients gradients() { return {.dq = dq.rows(), .dk = dk.rows(), .dv = dv.rows()}; }
  std::size_t matrix_size() const {
    return static_cast<std::size_t>(shape.batch * shape.heads * shape.queries * shape.keys);
  }
  void RunForward() { AttentionForward(shape, input(), z.rows(), log_sum_exp.data()); }
  void RunBackward() { AttentionBackward(shape, input(), output(), dz.rows(), gradients()); }

  AttentionShape shape;
  StridedRows q, k, v, dz, z, dq, dk, dv;
  std::vector<float> log_sum_exp;
};

// The rows of one sequence and head in double.
inline DoubleMatrix HeadMatrix(const AttentionShape& shape, HeadRows<const float> rows,
                               std::int64_t count, std::int64_t b, std::int64_t h) {
  DoubleMatrix matrix(static_cast<std::size_t>(count));
  for (std::int64_t t = 0; t < count; ++t) {
    const float* row =
        rows.data + b * rows.batch_stride + t * rows.row_stride + h * shape.head_size;
    matrix[static_cast<std::size_t>(t)].assign(row, row + shape.head_size);
  }
  return matrix;
}

// The visible part of one head of a [batch, heads, queries, keys] tensor.
inline DoubleMatrix VisiblePart(const AttentionShape& shape, const float* values, std::int64_t b,
                                std::int64_t h) {
  DoubleMatrix matrix(static_cast<std::size_t>(shape.queries));
  for (std::int64_t i = 0; i < shape.queries; ++i) {
    const float* row = values + ((b * shape.heads + h) * shape.queries + i) * shape.keys;
    matrix[static_cast<std::size_t>(i)].assign(row, row + i + 1 + (shape.keys - shape.queries));
  }
  return matrix;
}

struct Difference {
  double absolute = 0;
  double magnitude = 0;  // the largest expected value
  double relative() const { return magnitude == 0 ? absolute : absolute / magnitude; }
};

// NaN anywhere gives an infinite difference, which no tolerance accepts.
inline Difference Compare(const DoubleMatrix& actual, const DoubleMatrix& expected) {
  Difference result;
  if (actual.size() != expected.size()) return {std::numeric_limits<double>::infinity(), 0};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (actual[i].size() != expected[i].size()) return {std::numeric_limits<double>::infinity(), 0};
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      const double difference = std::abs(actual[i][j] - expected[i][j]);
      if (std::isnan(difference)) return {std::numeric_limits<double>::infinity(), 0};
      result.absolute = std::max(result.absolute, difference);
      result.magnitude = std::max(result.magnitude, std::abs(expected[i][j]));
    }
  }
  return result;
}

}  // namespace clearhead
