// SPDX-License-Identifier: MIT
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "kernels/attention_testing.h"
#include "kernels/reference/attention.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

// z, dq, dk, dv against the reference, largest difference relative to the largest value.
void ExpectMatchesReference(AttentionProblem& problem, double tolerance) {
  const AttentionShape& shape = problem.shape;
  problem.RunForward();
  problem.RunBackward();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto queries = [&](const StridedRows& rows) {
        return HeadMatrix(shape, rows.rows(), shape.queries, b, h);
      };
      const auto keys = [&](const StridedRows& rows) {
        return HeadMatrix(shape, rows.rows(), shape.keys, b, h);
      };
      const DoubleMatrix q = queries(problem.q), k = keys(problem.k), v = keys(problem.v);
      const double scale = shape.scale;
      EXPECT_LT(Compare(queries(problem.z), reference::Attention(q, k, v, scale)).relative(),
                tolerance);
      const DoubleMatrix s = reference::Scores(q, k, scale);
      for (std::size_t i = 0; i < s.size(); ++i) {
        double sum = 0;
        const double max = *std::max_element(s[i].begin(), s[i].end());
        for (const double x : s[i]) sum += std::exp(x - max);
        const std::size_t at = static_cast<std::size_t>((b * shape.heads + h) * shape.queries) + i;
        EXPECT_NEAR(problem.log_sum_exp[at], max + std::log(sum), tolerance * (1 + std::abs(max)));
      }
      const auto expected = reference::AttentionBackward(q, k, v, scale, queries(problem.dz));
      // A single visible key has softmax 1 whatever its score: dq is then exactly 0, and the
      // relative measure has no scale. The values' own gradient gives one.
      const double unit = Compare(expected.dv, expected.dv).magnitude;
      EXPECT_LT(Compare(queries(problem.dq), expected.dq).absolute,
                tolerance * std::max(unit, Compare(expected.dq, expected.dq).magnitude));
      EXPECT_LT(Compare(keys(problem.dk), expected.dk).absolute,
                tolerance * std::max(unit, Compare(expected.dk, expected.dk).magnitude));
      EXPECT_LT(Compare(keys(problem.dv), expected.dv).relative(), tolerance);
    }
  }
}

class AttentionSizes : public testing::TestWithParam<AttentionSize> {};

TEST_P(AttentionSizes, MatchesReference) {
  AttentionProblem problem(GetParam());
  ExpectMatchesReference(problem, 3e-6);
}

TEST_P(AttentionSizes, LargeScoresMatchReference) {
  // Scores of about +-100: the softmax is nearly one-hot, exp must not overflow, and the rounding
  // of the score itself (100 * 2^-24) is what limits the weights.
  AttentionProblem problem(GetParam(), 40.0);
  ExpectMatchesReference(problem, 2e-4);
}

TEST_P(AttentionSizes, WritesOnlyItsRows) {
  AttentionProblem problem(GetParam());
  const AttentionProblem before(GetParam());
  problem.RunForward();
  problem.RunBackward();
  const std::int64_t columns = problem.shape.heads * problem.shape.head_size;
  const auto expect_gaps_unchanged = [&](const StridedRows& now, const StridedRows& then,
                                         std::int64_t rows) {
    EXPECT_EQ(now.values().front(), then.values().front());
    const HeadRows<const float> layout = now.rows();
    for (std::int64_t b = 0; b < problem.shape.batch; ++b) {
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t c = columns; c < layout.row_stride; ++c) {
          const std::int64_t at = b * layout.batch_stride + t * layout.row_stride + c;
          ASSERT_EQ(layout.data[at], then.rows().data[at]) << "row " << t << " column " << c;
        }
      }
    }
  };
  expect_gaps_unchanged(problem.z, before.z, problem.shape.queries);
  expect_gaps_unchanged(problem.dq, before.dq, problem.shape.queries);
  expect_gaps_unchanged(problem.dk, before.dk, problem.shape.keys);
  expect_gaps_unchanged(problem.dv, before.dv, problem.shape.keys);
}

const std::vector<AttentionSize> kSizes = {
    {1, 1, 1, 1, 1},      {1, 1, 2, 2, 8},      {2, 3, 17, 17, 16},  {1, 1, 63, 63, 64},
    {1, 3, 64, 64, 80},   {2, 1, 65, 65, 64},   {1, 1, 95, 95, 1},   {1, 1, 96, 96, 8},
    {1, 1, 97, 97, 16},   {1, 1, 127, 127, 1},  {1, 2, 288, 288, 8}, {1, 1, 289, 289, 64},
    {2, 3, 300, 300, 16}, {1, 1, 300, 300, 64}, {1, 2, 1, 300, 64},  {2, 1, 5, 130, 80},
    {1, 1, 100, 301, 8},  {1, 1, 700, 700, 8}};
INSTANTIATE_TEST_SUITE_P(All, AttentionSizes, testing::ValuesIn(kSizes),
                         [](const auto& info) { return ToText(info.param); });

TEST(Attention, IsIndependentOfThreads) {
  // One head on several threads shares out query blocks; several heads do not.
  for (const AttentionSize& size :
       {AttentionSize{1, 1, 700, 700, 16}, AttentionSize{2, 3, 200, 200, 64}}) {
    std::vector<AttentionProblem> problems;
    for (const int count : {1, 2, 3}) {
      const UseThreads scope(count);
      AttentionProblem& problem = problems.emplace_back(size);
      problem.RunForward();
      problem.RunBackward();
    }
    for (const AttentionProblem& problem : problems) {
      EXPECT_EQ(problem.z.values(), problems[0].z.values());
      EXPECT_EQ(problem.log_sum_exp, problems[0].log_sum_exp);
      EXPECT_EQ(problem.dq.values(), problems[0].dq.values());
      EXPECT_EQ(problem.dk.values(), problems[0].dk.values());
      EXPECT_EQ(problem.dv.values(), problems[0].dv.values());
    }
  }
}

// A single query takes its own way to the sums over values; sizes around its vectors.
TEST(Attention, CachedDecodingGivesTheBitsOfTheWholeSequence) {
  for (const std::int64_t size : {1, 5, 13, 16, 48, 72, 130}) {
    AttentionProblem whole({2, 2, 133, 133, size});
    whole.RunForward();
    const std::int64_t row = 2 * size;
    for (const std::int64_t position : {0, 1, 50, 131, 132}) {
      AttentionShape shape = whole.shape;
      shape.queries = 1;
      shape.keys = position + 1;
      AttentionInput input = whole.input();
      input.q.data += position * input.q.row_stride;
      std::vector<float> z(static_cast<std::size_t>(2 * row));
      AttentionForward(shape, input, {z.data(), row, row}, nullptr);
      const HeadRows<const float> expected = whole.z.rows();
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t c = 0; c < row; ++c) {
          EXPECT_EQ(z[static_cast<std::size_t>(b * row + c)],
                    expected.data[b * expected.batch_stride + position * expected.row_stride + c])
              << "head size " << size << ", position " << position;
        }
      }
    }
  }
}

TEST(Attention, NaNInputIsNotHidden) {
  AttentionProblem problem({1, 1, 20, 20, 8});
  problem.k.rows().data[3 * problem.k.rows().row_stride] = NAN;
  problem.RunForward();
  const DoubleMatrix z = HeadMatrix(problem.shape, problem.z.rows(), 20, 0, 0);
  EXPECT_FALSE(std::isnan(z[2][0]));  // does not see key 3
  EXPECT_TRUE(std::isnan(z[3][0]));
  EXPECT_TRUE(std::isnan(z[19][0]));
}

TEST(Attention, RefusesMoreQueriesThanKeys) {
  AttentionProblem problem({1, 1, 4, 4, 8});
  problem.shape.keys = 3;
  EXPECT_THROW(problem.RunForward(), std::logic_error);
}

}  // namespace
}  // namespace clearhead
