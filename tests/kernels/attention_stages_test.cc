// SPDX-License-Identifier: MIT
#include "kernels/attention_stages.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "kernels/attention_testing.h"
#include "kernels/gated_attention.h"
#include "kernels/gated_attention_stages.h"
#include "kernels/reference/attention.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void ExpectAbove(const AttentionShape& shape, const std::vector<float>& matrix, float value) {
  for (std::int64_t row = 0; row < shape.batch * shape.heads * shape.queries; ++row) {
    const std::int64_t visible = row % shape.queries + 1 + (shape.keys - shape.queries);
    for (std::int64_t j = visible; j < shape.keys; ++j) {
      ASSERT_EQ(matrix[static_cast<std::size_t>(row * shape.keys + j)], value);
    }
  }
}

class StageSizes : public testing::TestWithParam<AttentionSize> {};

TEST_P(StageSizes, MatchTheReferenceAndTheFusedKernels) {
  AttentionProblem fused(GetParam()), staged(GetParam());
  const AttentionShape& shape = staged.shape;
  std::vector<float> scores(staged.matrix_size()), pattern(scores.size()), direct(scores.size());
  std::vector<float> dpattern(scores.size()), dscores(scores.size());
  AttentionScores(shape, staged.q.rows(), staged.k.rows(), scores.data());
  CausalSoftmax(shape, scores.data(), pattern.data());
  AttentionPattern(shape, staged.q.rows(), staged.k.rows(), direct.data());
  AttentionApply(shape, pattern.data(), staged.v.rows(), staged.z.rows());
  AttentionApplyBackward(shape, pattern.data(), staged.v.rows(), staged.dz.rows(), dpattern.data(),
                         staged.dv.rows());
  CausalSoftmaxBackward(shape, pattern.data(), dpattern.data(), dscores.data());
  AttentionScoresBackward(shape, staged.q.rows(), staged.k.rows(), dscores.data(), staged.dq.rows(),
                          staged.dk.rows());

  EXPECT_EQ(direct, pattern);
  ExpectAbove(shape, scores, -kInfinity);
  ExpectAbove(shape, pattern, 0.0f);
  ExpectAbove(shape, dpattern, 0.0f);
  ExpectAbove(shape, dscores, 0.0f);
  fused.RunForward();
  fused.RunBackward();
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto of = [&](const StridedRows& rows, std::int64_t count) {
        return HeadMatrix(shape, rows.rows(), count, b, h);
      };
      const DoubleMatrix q = of(staged.q, shape.queries), k = of(staged.k, shape.keys);
      const DoubleMatrix s = reference::Scores(q, k, static_cast<double>(shape.scale));
      EXPECT_LT(Compare(VisiblePart(shape, scores.data(), b, h), s).absolute, 4e-6);
      EXPECT_LT(Compare(VisiblePart(shape, pattern.data(), b, h), reference::Softmax(s)).absolute,
                2e-6);
      EXPECT_LT(Compare(of(staged.z, shape.queries), of(fused.z, shape.queries)).absolute, 2e-6);
      EXPECT_LT(Compare(of(staged.dq, shape.queries), of(fused.dq, shape.queries)).absolute, 1e-5);
      EXPECT_LT(Compare(of(staged.dk, shape.keys), of(fused.dk, shape.keys)).absolute, 1e-5);
      EXPECT_LT(Compare(of(staged.dv, shape.keys), of(fused.dv, shape.keys)).absolute, 1e-5);
    }
  }
  CausalSoftmax(shape, scores.data(), scores.data());
  EXPECT_EQ(scores, pattern) << "in place";
  CausalSoftmaxBackward(shape, pattern.data(), dpattern.data(), dpattern.data());
  EXPECT_EQ(dpattern, dscores) << "in place";
}

TEST_P(StageSizes, GatedStagesAgreeWithTheFusedKernelsOnEveryGate) {
  for (const GateMode mode : {GateMode::kHard, GateMode::kSampled}) {
    AttentionProblem fused(GetParam()), staged(GetParam());
    const AttentionShape& shape = staged.shape;
    std::vector<float> biases;
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      biases.push_back(0.4f * static_cast<float>(h) - 0.2f);
    }
    const GateOptions gate{
        .mode = mode, .bias = {-0.5f, biases.data()}, .noise = {.seed = 2, .step = 1, .layer = 4}};
    const std::size_t heads = static_cast<std::size_t>(shape.batch * shape.heads);
    std::vector<double> fused_d_bias(heads), d_bias(heads);
    std::vector<std::int64_t> fused_edges(heads), edges(heads);
    std::vector<double> fused_probability(heads), probability(heads);
    GatedAttentionForward(shape, fused.input(), gate, fused.z.rows(), fused.log_sum_exp.data(),
                          {fused_edges.data(), fused_probability.data()});
    GatedAttentionBackward(shape, fused.input(), gate, 0.2f, fused.output(), fused.dz.rows(),
                           fused.gradients(), fused_d_bias.data());

    std::vector<float> scores(staged.matrix_size()), pattern(scores.size()), mask(scores.size());
    std::vector<float> weights(scores.size()), d(scores.size());
    AttentionScores(shape, staged.q.rows(), staged.k.rows(), scores.data());
    CausalSoftmax(shape, scores.data(), pattern.data());
    GateMask(shape, gate, scores.data(), mask.data(), nullptr, {edges.data(), probability.data()});
    ApplyGate(shape, pattern.data(), mask.data(), weights.data());
    AttentionApply(shape, weights.data(), staged.v.rows(), staged.z.rows());
    AttentionApplyBackward(shape, weights.data(), staged.v.rows(), staged.dz.rows(), d.data(),
                           staged.dv.rows());
    GateBackward(shape, gate, {scores.data(), pattern.data(), mask.data()}, d.data(), 0.2f,
                 d.data(), d_bias.data());
    AttentionScoresBackward(shape, staged.q.rows(), staged.k.rows(), d.data(), staged.dq.rows(),
                            staged.dk.rows());
    for (std::size_t n = 0; n < heads; ++n) EXPECT_NEAR(d_bias[n], fused_d_bias[n], 1e-4);
    EXPECT_EQ(edges, fused_edges);
    for (std::size_t n = 0; n < heads; ++n) {
      EXPECT_NEAR(probability[n], fused_probability[n], 1e-6 * probability[n]);
    }
    ExpectAbove(shape, mask, 0.0f);
    ExpectAbove(shape, weights, 0.0f);
    ExpectAbove(shape, d, 0.0f);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const auto difference = [&](const StridedRows& x, const StridedRows& y,
                                    std::int64_t count) {
          return Compare(HeadMatrix(shape, x.rows(), count, b, h),
                         HeadMatrix(shape, y.rows(), count, b, h))
              .absolute;
        };
        EXPECT_LT(difference(staged.z, fused.z, shape.queries), 2e-6);
        EXPECT_LT(difference(staged.dq, fused.dq, shape.queries), 2e-5);
        EXPECT_LT(difference(staged.dk, fused.dk, shape.keys), 2e-5);
        EXPECT_LT(difference(staged.dv, fused.dv, shape.keys), 1e-5);
      }
    }
  }
}

const std::vector<AttentionSize> kSizes = {
    {1, 1, 1, 1, 1},      {1, 3, 2, 2, 8},    {2, 3, 17, 17, 16}, {1, 1, 97, 97, 80},
    {1, 2, 300, 300, 16}, {2, 1, 1, 300, 64}, {1, 1, 100, 301, 8}};
INSTANTIATE_TEST_SUITE_P(All, StageSizes, testing::ValuesIn(kSizes),
                         [](const auto& info) { return ToText(info.param); });

TEST(CausalSoftmax, HandlesInfiniteScores) {
  const AttentionShape shape{.batch = 1, .heads = 1, .queries = 3, .keys = 3, .head_size = 1};
  // An intervention removed key 0 everywhere: row 0 sees nothing, row 1 only key 1.
  std::vector<float> scores = {-kInfinity, 9, 9, -kInfinity, 2, 9, -kInfinity, 1, 1};
  CausalSoftmax(shape, scores.data(), scores.data());
  EXPECT_EQ(scores, (std::vector<float>{0, 0, 0, 0, 1, 0, 0, 0.5f, 0.5f}));
}

TEST(AttentionApply, IgnoresWhatLiesAboveTheDiagonal) {
  AttentionProblem problem({1, 1, 20, 20, 8}), dirty({1, 1, 20, 20, 8});
  std::vector<float> pattern(problem.matrix_size());
  AttentionPattern(problem.shape, problem.q.rows(), problem.k.rows(), pattern.data());
  AttentionApply(problem.shape, pattern.data(), problem.v.rows(), problem.z.rows());
  for (std::size_t i = 0; i < 20; ++i) {
    for (std::size_t j = i + 1; j < 20; ++j) pattern[i * 20 + j] = NAN;
  }
  AttentionApply(dirty.shape, pattern.data(), dirty.v.rows(), dirty.z.rows());
  EXPECT_EQ(dirty.z.values(), problem.z.values());
}

TEST(AttentionStages, AreIndependentOfThreads) {
  std::vector<std::vector<float>> results;
  for (const int count : {1, 2, 3}) {
    const UseThreads scope(count);
    AttentionProblem problem({1, 1, 400, 400, 16});
    std::vector<float> pattern(problem.matrix_size()), dpattern(pattern.size());
    AttentionPattern(problem.shape, problem.q.rows(), problem.k.rows(), pattern.data());
    AttentionApplyBackward(problem.shape, pattern.data(), problem.v.rows(), problem.dz.rows(),
                           dpattern.data(), problem.dv.rows());
    AttentionScoresBackward(problem.shape, problem.q.rows(), problem.k.rows(), dpattern.data(),
                            problem.dq.rows(), problem.dk.rows());
    std::vector<float>& result = results.emplace_back(pattern);
    for (const StridedRows* rows : {&problem.dq, &problem.dk, &problem.dv}) {
      result.insert(result.end(), rows->values().begin(), rows->values().end());
    }
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

// The dispatcher picks the best instruction set of this machine; the others must be right as well.
TEST(AttentionStages, EveryInstructionSetAgrees) {
  const AttentionSize size{1, 2, 131, 131, 20};
  AttentionProblem expected(size);
  expected.RunForward();
  expected.RunBackward();
  const std::int64_t all = hwy::SupportedTargets();
  int tried = 0;
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(left & -left);
    ++tried;
    AttentionProblem problem(size);
    problem.RunForward();
    problem.RunBackward();
    const AttentionShape& shape = problem.shape;
    for (std::int64_t h = 0; h < 2; ++h) {
      const auto difference = [&](const StridedRows& x, const StridedRows& y) {
        return Compare(HeadMatrix(shape, x.rows(), 131, 0, h),
                       HeadMatrix(shape, y.rows(), 131, 0, h))
            .absolute;
      };
      EXPECT_LT(difference(problem.z, expected.z), 3e-6) << hwy::TargetName(left & -left);
      EXPECT_LT(difference(problem.dq, expected.dq), 1e-5) << hwy::TargetName(left & -left);
      EXPECT_LT(difference(problem.dk, expected.dk), 1e-5) << hwy::TargetName(left & -left);
      EXPECT_LT(difference(problem.dv, expected.dv), 1e-5) << hwy::TargetName(left & -left);
    }
    const GateOptions gate{.mode = GateMode::kSampled, .bias = -1.0f, .noise = {.seed = 5}};
    std::vector<std::int64_t> edges(2), staged_edges(2);
    GatedAttentionForward(shape, problem.input(), gate, problem.z.rows(),
                          problem.log_sum_exp.data(), {.open_edges = edges.data()});
    std::vector<float> scores(problem.matrix_size());
    AttentionScores(shape, problem.q.rows(), problem.k.rows(), scores.data());
    GateMask(shape, gate, scores.data(), nullptr, nullptr, {.open_edges = staged_edges.data()});
    EXPECT_EQ(edges, staged_edges) << hwy::TargetName(left & -left);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_GE(tried, 1);
}

}  // namespace
}  // namespace clearhead
