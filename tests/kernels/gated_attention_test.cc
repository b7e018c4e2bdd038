// SPDX-License-Identifier: MIT
#include "kernels/gated_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/threads.h"
#include "kernels/attention_testing.h"
#include "kernels/reference/gated_attention.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

// Uniform noise for every pair that keeps all gates away from their threshold, so that fp32 and
// double must agree on each of them.
std::vector<float> SafeNoise(const AttentionProblem& problem, HeadNumbers bias,
                             std::uint64_t seed) {
  const AttentionShape& shape = problem.shape;
  std::vector<float> uniform(problem.matrix_size(), 0.5f);
  RandomStream random(seed);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const DoubleMatrix s = reference::Scores(
          HeadMatrix(shape, problem.q.rows(), shape.queries, b, h),
          HeadMatrix(shape, problem.k.rows(), shape.keys, b, h), static_cast<double>(shape.scale));
      for (std::size_t i = 0; i < s.size(); ++i) {
        const std::int64_t row =
            (b * shape.heads + h) * shape.queries + static_cast<std::int64_t>(i);
        for (std::size_t j = 0; j < s[i].size(); ++j) {
          float& u = uniform[static_cast<std::size_t>(row * shape.keys) + j];
          do {
            u = static_cast<float>(random.Uniform());
          } while (u <= 0 || u >= 1 ||
                   std::abs(s[i][j] + bias.Of(h) + std::log(u) -
                            std::log1p(-static_cast<double>(u))) < 1e-3);
        }
      }
    }
  }
  return uniform;
}

struct GatedRun {
  explicit GatedRun(const AttentionProblem& p)
      : open_edges(static_cast<std::size_t>(p.shape.batch * p.shape.heads)),
        probability_sum(open_edges.size()),
        bias_gradient(open_edges.size()) {}

  void Forward(AttentionProblem& problem, const GateOptions& gate) {
    GatedAttentionForward(
        problem.shape, problem.input(), gate, problem.z.rows(), problem.log_sum_exp.data(),
        {.open_edges = open_edges.data(), .probability_sum = probability_sum.data()});
  }
  void Backward(AttentionProblem& problem, const GateOptions& gate, HeadNumbers penalty) {
    GatedAttentionBackward(problem.shape, problem.input(), gate, penalty, problem.output(),
                           problem.dz.rows(), problem.gradients(), bias_gradient.data());
  }

  std::vector<std::int64_t> open_edges;
  std::vector<double> probability_sum, bias_gradient;
};

void ExpectMatchesReference(AttentionProblem& problem, const GateOptions& gate, HeadNumbers penalty,
                            double tolerance) {
  const AttentionShape& shape = problem.shape;
  GatedRun run(problem);
  run.Forward(problem, gate);
  run.Backward(problem, gate, penalty);
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto queries = [&](const StridedRows& rows) {
        return HeadMatrix(shape, rows.rows(), shape.queries, b, h);
      };
      const auto keys = [&](const StridedRows& rows) {
        return HeadMatrix(shape, rows.rows(), shape.keys, b, h);
      };
      reference::GateSettings<double> settings{
          .gate = gate.mode == GateMode::kHard ? reference::Gate::kHard : reference::Gate::kSampled,
          .bias = gate.bias.Of(h),
          .u = {}};
      if (gate.uniform != nullptr) settings.u = VisiblePart(shape, gate.uniform, b, h);
      const DoubleMatrix q = queries(problem.q), k = keys(problem.k), v = keys(problem.v);
      const double scale = shape.scale;
      const auto expected = reference::GatedAttention(q, k, v, scale, settings);
      // Values are of order 1; a row that is mostly gated away has no larger scale of its own.
      EXPECT_LT(Compare(queries(problem.z), expected.z).absolute, 4 * tolerance);
      const std::size_t head = static_cast<std::size_t>(b * shape.heads + h);
      EXPECT_EQ(run.open_edges[head], expected.open_edges);
      EXPECT_NEAR(run.probability_sum[head], expected.probability_sum,
                  1e-6 * expected.probability_sum + 1e-12);
      const auto gradients = reference::GatedAttentionBackward(
          q, k, v, scale, settings, static_cast<double>(penalty.Of(h)), queries(problem.dz));
      const auto expect_close = [&](const DoubleMatrix& actual, const DoubleMatrix& wanted) {
        const Difference difference = Compare(actual, wanted);
        EXPECT_LT(difference.absolute, tolerance * std::max(1.0, difference.magnitude));
      };
      expect_close(queries(problem.dq), gradients.dq);
      expect_close(keys(problem.dk), gradients.dk);
      expect_close(keys(problem.dv), gradients.dv);
      // A sum over all pairs: held to the size of what is added up.
      const double pairs = static_cast<double>(shape.queries * shape.keys);
      EXPECT_NEAR(run.bias_gradient[head], gradients.dbias,
                  tolerance * (std::max(1.0, std::abs(gradients.dbias)) + 1e-2 * pairs));
    }
  }
}

class GatedSizes : public testing::TestWithParam<AttentionSize> {};

TEST_P(GatedSizes, SampledMatchesReference) {
  for (const float bias : {-4.0f, 0.0f, 3.0f}) {
    AttentionProblem problem(GetParam());
    const std::vector<float> uniform = SafeNoise(problem, bias, 5);
    ExpectMatchesReference(
        problem, {.mode = GateMode::kSampled, .bias = bias, .uniform = uniform.data()}, 0.3f, 4e-6);
  }
}

TEST_P(GatedSizes, HardMatchesReference) {
  // A bias off the scores' grid by chance keeps every gate clear of 0 (checked by the exact edges).
  for (const float bias : {-2.0f, 0.01f, 2.0f}) {
    AttentionProblem problem(GetParam());
    ExpectMatchesReference(problem, {.mode = GateMode::kHard, .bias = bias}, -0.2f, 4e-6);
  }
}

// Every head with a bias and a penalty of its own.
TEST_P(GatedSizes, BiasesAndPenaltiesByHead) {
  AttentionProblem problem(GetParam());
  std::vector<float> biases, penalties;
  for (std::int64_t h = 0; h < problem.shape.heads; ++h) {
    biases.push_back(-1.7f + 0.9f * static_cast<float>(h));
    penalties.push_back(0.4f - 0.15f * static_cast<float>(h));
  }
  const HeadNumbers bias{0.31f, biases.data()}, penalty{0.05f, penalties.data()};
  ExpectMatchesReference(problem, {.mode = GateMode::kHard, .bias = bias}, penalty, 4e-6);
  std::vector<float> uniform = SafeNoise(problem, bias, 5);
  ExpectMatchesReference(problem,
                         {.mode = GateMode::kSampled, .bias = bias, .uniform = uniform.data()},
                         penalty, 4e-6);
}

// Evaluation asks for edges only: another path through the row, with the same gates.
TEST_P(GatedSizes, HardWithoutProbabilitiesIsTheSame) {
  for (const double spread : {1.0, 40.0}) {
    for (const float bias : {-2.0f, 0.01f, 2.0f}) {
      AttentionProblem with(GetParam(), spread), without(GetParam(), spread);
      const GateOptions gate{.mode = GateMode::kHard, .bias = bias};
      GatedRun run(with);
      run.Forward(with, gate);
      std::vector<std::int64_t> edges(run.open_edges.size(), -1);
      GatedAttentionForward(without.shape, without.input(), gate, without.z.rows(),
                            without.log_sum_exp.data(), {edges.data(), nullptr});
      EXPECT_EQ(edges, run.open_edges);
      for (std::int64_t b = 0; b < with.shape.batch; ++b) {
        for (std::int64_t h = 0; h < with.shape.heads; ++h) {
          const auto of = [&](AttentionProblem& problem) {
            return HeadMatrix(problem.shape, problem.z.rows(), problem.shape.queries, b, h);
          };
          // Weights are exp(s - max) directly, or exp(s + bias) times a factor per row: each within
          // about 1e-6 of the truth, as the tests against the reference demand.
          EXPECT_LT(Compare(of(with), of(without)).absolute, 4e-6);
        }
      }
    }
  }
}

TEST_P(GatedSizes, LargeScoresMatchReference) {
  AttentionProblem problem(GetParam(), 40.0);
  const std::vector<float> uniform = SafeNoise(problem, 1.0f, 6);
  ExpectMatchesReference(
      problem, {.mode = GateMode::kSampled, .bias = 1.0f, .uniform = uniform.data()}, 0.3f, 1e-3);
}

const std::vector<AttentionSize> kSizes = {
    {1, 1, 1, 1, 1},     {1, 1, 2, 2, 8},      {2, 3, 17, 17, 16},   {1, 1, 63, 63, 64},
    {1, 3, 64, 64, 80},  {2, 1, 65, 65, 64},   {1, 1, 97, 97, 16},   {1, 1, 127, 127, 1},
    {1, 1, 289, 289, 8}, {2, 1, 300, 300, 16}, {1, 1, 300, 300, 64}, {1, 2, 1, 300, 64},
    {1, 1, 100, 301, 8}};
INSTANTIATE_TEST_SUITE_P(All, GatedSizes, testing::ValuesIn(kSizes),
                         [](const auto& info) { return ToText(info.param); });

TEST(GatedAttention, HashedNoiseIsTheScalarSpecification) {
  AttentionProblem hashed({2, 2, 70, 101, 16}), stored({2, 2, 70, 101, 16});
  const AttentionShape& shape = hashed.shape;
  const NoiseCoordinates at{.seed = 9, .step = 4, .first_sample = 100, .layer = 3};
  std::vector<float> uniform(stored.matrix_size());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t i = 0; i < shape.queries; ++i) {
        const std::int64_t position = i + shape.keys - shape.queries;
        const NoiseRow row =
            HashNoiseRow(at, static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(h),
                         static_cast<std::uint64_t>(position));
        float* to = uniform.data() + ((b * 2 + h) * shape.queries + i) * shape.keys;
        for (std::int64_t j = 0; j < shape.keys; ++j)
          to[j] = GateNoise(row, static_cast<std::uint32_t>(j));
      }
    }
  }
  GatedRun hashed_run(hashed), stored_run(stored);
  const GateOptions hashed_gate{.mode = GateMode::kSampled, .bias = -1.0f, .noise = at};
  const GateOptions stored_gate{
      .mode = GateMode::kSampled, .bias = -1.0f, .uniform = uniform.data()};
  hashed_run.Forward(hashed, hashed_gate);
  hashed_run.Backward(hashed, hashed_gate, 0.1f);
  stored_run.Forward(stored, stored_gate);
  stored_run.Backward(stored, stored_gate, 0.1f);
  EXPECT_EQ(hashed.z.values(), stored.z.values());
  EXPECT_EQ(hashed.dq.values(), stored.dq.values());
  EXPECT_EQ(hashed.dk.values(), stored.dk.values());
  EXPECT_EQ(hashed.dv.values(), stored.dv.values());
  EXPECT_EQ(hashed_run.open_edges, stored_run.open_edges);
}

TEST(GatedAttention, IsIndependentOfThreads) {
  for (const AttentionSize& size :
       {AttentionSize{1, 1, 700, 700, 16}, AttentionSize{2, 3, 200, 200, 64}}) {
    for (const GateMode mode : {GateMode::kSampled, GateMode::kHard}) {
      for (const float bias : {0.0f, -6.0f}) {
        const GateOptions gate{.mode = mode, .bias = bias, .noise = {.seed = 3}};
        std::vector<AttentionProblem> problems, bare;
        std::vector<GatedRun> runs;
        for (const int count : {1, 2, 3}) {
          const UseThreads scope(count);
          AttentionProblem& problem = problems.emplace_back(size);
          GatedRun& run = runs.emplace_back(problem);
          run.Forward(problem, gate);
          run.Backward(problem, gate, 0.1f);
          AttentionProblem& plain = bare.emplace_back(size);
          GatedAttentionForward(plain.shape, plain.input(), gate, plain.z.rows(),
                                plain.log_sum_exp.data(), {});
        }
        for (std::size_t n = 0; n < 3; ++n) {
          EXPECT_EQ(problems[n].z.values(), problems[0].z.values());
          EXPECT_EQ(problems[n].log_sum_exp, problems[0].log_sum_exp);
          EXPECT_EQ(problems[n].dq.values(), problems[0].dq.values());
          EXPECT_EQ(problems[n].dk.values(), problems[0].dk.values());
          EXPECT_EQ(problems[n].dv.values(), problems[0].dv.values());
          EXPECT_EQ(runs[n].open_edges, runs[0].open_edges);
          EXPECT_EQ(runs[n].probability_sum, runs[0].probability_sum);
          EXPECT_EQ(bare[n].z.values(), bare[0].z.values());
          EXPECT_EQ(bare[n].log_sum_exp, bare[0].log_sum_exp);
        }
      }
    }
  }
}

TEST(GatedAttention, AllClosedGivesExactZeroAndFiniteGradients) {
  for (const GateMode mode : {GateMode::kHard, GateMode::kSampled}) {
    AttentionProblem problem({1, 2, 150, 150, 64});
    GatedRun run(problem);
    const GateOptions gate{.mode = mode, .bias = -1000.0f};
    run.Forward(problem, gate);
    run.Backward(problem, gate, 1.0f);
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(run.open_edges[static_cast<std::size_t>(h)], 0);
      EXPECT_EQ(run.probability_sum[static_cast<std::size_t>(h)], 0.0);
      for (const StridedRows* rows : {&problem.z, &problem.dq, &problem.dk, &problem.dv}) {
        for (const std::vector<double>& row : HeadMatrix(problem.shape, rows->rows(), 150, 0, h)) {
          for (const double x : row) ASSERT_EQ(x, 0.0);
        }
      }
    }
  }
}

TEST(GatedAttention, AllOpenIsDenseAttention) {
  for (const GateMode mode : {GateMode::kHard, GateMode::kSampled}) {
    AttentionProblem gated({1, 2, 150, 150, 64}), dense({1, 2, 150, 150, 64});
    GatedRun run(gated);
    const GateOptions gate{.mode = mode, .bias = 1000.0f};
    run.Forward(gated, gate);
    run.Backward(gated, gate, 1.0f);
    dense.RunForward();
    dense.RunBackward();
    EXPECT_EQ(run.open_edges[0], 150 * 151 / 2);
    EXPECT_DOUBLE_EQ(run.probability_sum[0], 150 * 151 / 2);
    const auto of = [&](const StridedRows& rows, std::int64_t h) {
      return HeadMatrix(gated.shape, rows.rows(), 150, 0, h);
    };
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_LT(Compare(of(gated.z, h), of(dense.z, h)).absolute, 1e-6);
      EXPECT_LT(Compare(of(gated.dq, h), of(dense.dq, h)).absolute, 2e-6);
      EXPECT_LT(Compare(of(gated.dk, h), of(dense.dk, h)).absolute, 1e-5);
      EXPECT_LT(Compare(of(gated.dv, h), of(dense.dv, h)).absolute, 1e-5);
    }
  }
}

TEST(GatedAttention, RowsWithoutAnOpenGateAreExactlyZero) {
  AttentionProblem problem({1, 1, 120, 120, 16});
  GatedRun run(problem);
  const GateOptions gate{.mode = GateMode::kHard, .bias = -2.5f};
  run.Forward(problem, gate);
  const DoubleMatrix s = reference::Scores(HeadMatrix(problem.shape, problem.q.rows(), 120, 0, 0),
                                           HeadMatrix(problem.shape, problem.k.rows(), 120, 0, 0),
                                           static_cast<double>(problem.shape.scale));
  const DoubleMatrix z = HeadMatrix(problem.shape, problem.z.rows(), 120, 0, 0);
  int empty = 0, open = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const bool any = std::any_of(s[i].begin(), s[i].end(), [](double x) { return x > 2.5; });
    (any ? open : empty) += 1;
    for (const double x : z[i]) EXPECT_EQ(x != 0.0, any);
  }
  EXPECT_GT(empty, 10);
  EXPECT_GT(open, 10);
}

TEST(GatedAttention, ClosedKeysHaveNoInfluenceWhateverTheirValue) {
  // A huge value behind a closed gate: even 0 * 1e30 stays 0, but a weight that is merely small
  // would show.
  AttentionProblem problem({1, 1, 40, 40, 16}), changed({1, 1, 40, 40, 16});
  const HeadRows<float> k = changed.k.rows(), v = changed.v.rows(), k0 = problem.k.rows();
  for (std::int64_t d = 0; d < 16; ++d) {
    k.data[7 * k.row_stride + d] = 0.0f;  // score 0: below the threshold of bias -0.5
    k0.data[7 * k.row_stride + d] = 0.0f;
    v.data[7 * v.row_stride + d] = 1e30f;
  }
  GatedRun run(problem);
  const GateOptions gate{.mode = GateMode::kHard, .bias = -0.5f};
  run.Forward(problem, gate);
  run.Forward(changed, gate);
  EXPECT_EQ(problem.z.values(), changed.z.values());
}

// The soft gate of the reference is differentiable: its formulas, term by term, against central
// differences of L = sum(z * r) + c * sum(sigmoid(g)).
TEST(GatedReference, SoftGateMatchesFiniteDifferences) {
  const std::size_t queries = 5, keys = 7, size = 3;
  RandomStream random(8);
  const auto make = [&](std::size_t rows) {
    DoubleMatrix matrix = reference::MakeMatrix<double>(rows, size);
    for (auto& row : matrix) {
      for (double& x : row) x = random.Normal();
    }
    return matrix;
  };
  DoubleMatrix q = make(queries), k = make(keys), v = make(keys);
  const DoubleMatrix r = make(queries);
  reference::GateSettings<double> settings{.gate = reference::Gate::kSoft, .bias = -0.3, .u = {}};
  settings.u = reference::MakeMatrix<double>(queries, keys);
  for (auto& row : settings.u) {
    for (double& u : row) u = random.Uniform();
  }
  const double scale = 0.7, c = 0.4;
  const auto loss = [&] {
    const auto out = reference::GatedAttention(q, k, v, scale, settings);
    double sum = c * out.probability_sum;
    for (std::size_t i = 0; i < queries; ++i) sum += reference::Dot(out.z[i], r[i]);
    return sum;
  };
  const auto gradients = reference::GatedAttentionBackward(q, k, v, scale, settings, c, r);
  const auto expect_gradient = [&](DoubleMatrix& x, const DoubleMatrix& dx) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t d = 0; d < size; ++d) {
        const double at = x[i][d], step = 1e-5;
        x[i][d] = at + step;
        const double above = loss();
        x[i][d] = at - step;
        const double below = loss();
        x[i][d] = at;
        EXPECT_NEAR(dx[i][d], (above - below) / (2 * step), 1e-8);
      }
    }
  };
  expect_gradient(q, gradients.dq);
  expect_gradient(k, gradients.dk);
  expect_gradient(v, gradients.dv);
  const double step = 1e-5;
  settings.bias += step;
  const double above = loss();
  settings.bias -= 2 * step;
  EXPECT_NEAR(gradients.dbias, (above - loss()) / (2 * step), 1e-8);
}

TEST(DenseReference, MatchesFiniteDifferences) {
  RandomStream random(9);
  const auto make = [&](std::size_t rows) {
    DoubleMatrix matrix = reference::MakeMatrix<double>(rows, 4);
    for (auto& row : matrix) {
      for (double& x : row) x = random.Normal();
    }
    return matrix;
  };
  DoubleMatrix q = make(6), k = make(6), v = make(6);
  const DoubleMatrix r = make(6);
  const auto loss = [&] {
    const DoubleMatrix z = reference::Attention(q, k, v, 0.5);
    double sum = 0;
    for (std::size_t i = 0; i < z.size(); ++i) sum += reference::Dot(z[i], r[i]);
    return sum;
  };
  const auto gradients = reference::AttentionBackward(q, k, v, 0.5, r);
  const auto expect_gradient = [&](DoubleMatrix& x, const DoubleMatrix& dx) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t d = 0; d < 4; ++d) {
        const double at = x[i][d], step = 1e-5;
        x[i][d] = at + step;
        const double above = loss();
        x[i][d] = at - step;
        const double below = loss();
        x[i][d] = at;
        EXPECT_NEAR(dx[i][d], (above - below) / (2 * step), 1e-8);
      }
    }
  };
  expect_gradient(q, gradients.dq);
  expect_gradient(k, gradients.dk);
  expect_gradient(v, gradients.dv);
}

}  // namespace
}  // namespace clearhead
