// SPDX-License-Identifier: MIT
// Layer norm, activations, cross-entropy and AdamW against plain double-precision formulas and
// their central differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "core/random.h"
#include "core/threads.h"
#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/column_sums.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed, double scale = 1.0) {
  RandomStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(scale * random.Normal());
  return values;
}

// The specification: y = (x - mean) / sqrt(var + eps) * w + b.
std::vector<double> NormReference(const std::vector<double>& x, const std::vector<float>& w,
                                  const std::vector<float>& b, double epsilon) {
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / static_cast<double>(x.size());
  for (const double v : x) variance += (v - mean) * (v - mean) / static_cast<double>(x.size());
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    y[i] = (x[i] - mean) / std::sqrt(variance + epsilon) * w[i] + b[i];
  }
  return y;
}

TEST(LayerNorm, ForwardAndBackwardMatchDouble) {
  for (const std::int64_t width : {1, 2, 7, 8, 33, 768}) {
    const std::int64_t rows = 5;
    auto x = RandomValues(rows * width, 1);
    for (float& v : x) v = 3.0f * v + 20.0f;  // a large mean, as residual streams have
    const auto w = RandomValues(width, 2), b = RandomValues(width, 3),
               dy = RandomValues(rows * width, 4);
    const Norm norm{NormKind::kLayer, w.data(), b.data(), width, 1e-5f};
    std::vector<float> y(x.size()), mean(rows), scale(rows), dx(x.size(), 0.5f);
    std::vector<float> dw(w.size(), 1.0f), db(b.size(), 1.0f);
    NormForward(norm, rows, x.data(), y.data(), mean.data(), scale.data());
    NormBackward(norm, rows, x.data(), mean.data(), scale.data(), dy.data(), dx.data(), dw.data(),
                 db.data());
    std::vector<double> dw_sum(w.size(), 1.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<double> row(x.begin() + r * width, x.begin() + (r + 1) * width);
      const std::vector<double> expected = NormReference(row, w, b, 1e-5);
      for (std::int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>(r * width + i);
        const auto column = static_cast<std::size_t>(i);
        EXPECT_NEAR(y[at], expected[column], 2e-4) << width;  // |x| is 20: 20 * 2^-24 / scale
        const double unit = w[column] == 0 ? 0 : (expected[column] - b[column]) / w[column];
        dw_sum[column] += dy[at] * unit;
        // d sum(dy * y) / dx_i by central differences in double.
        const double h = 1e-4;
        std::vector<double> plus = row, minus = row;
        plus[column] += h;
        minus[column] -= h;
        const auto y_plus = NormReference(plus, w, b, 1e-5),
                   y_minus = NormReference(minus, w, b, 1e-5);
        double derivative = 0;
        for (std::int64_t j = 0; j < width; ++j) {
          const auto c = static_cast<std::size_t>(j);
          derivative +=
              dy[static_cast<std::size_t>(r * width + j)] * (y_plus[c] - y_minus[c]) / (2 * h);
        }
        EXPECT_NEAR(dx[at], 0.5 + derivative, 1e-3 * (1 + std::abs(derivative))) << width;
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const auto c = static_cast<std::size_t>(i);
      double db_sum = 1.0;
      for (std::int64_t r = 0; r < rows; ++r) db_sum += dy[static_cast<std::size_t>(r * width + i)];
      EXPECT_NEAR(db[c], db_sum, 1e-5);
      EXPECT_NEAR(dw[c], dw_sum[c], 1e-3);
    }
  }
}

TEST(LayerNorm, ParameterGradientsDoNotDependOnThreads) {
  const std::int64_t rows = 1000, width = 37;
  const auto x = RandomValues(rows * width, 1), w = RandomValues(width, 2),
             dy = RandomValues(rows * width, 3);
  const Norm norm{NormKind::kLayer, w.data(), w.data(), width, 1e-5f};
  std::vector<std::vector<float>> results;
  for (const int n : {1, 2, 3}) {
    const UseThreads scope(n);
    std::vector<float> y(x.size()), mean(rows), scale(rows), dx(x.size()), dw(w.size()),
        db(w.size());
    NormForward(norm, rows, x.data(), y.data(), mean.data(), scale.data());
    NormBackward(norm, rows, x.data(), mean.data(), scale.data(), dy.data(), dx.data(), dw.data(),
                 db.data());
    dw.insert(dw.end(), db.begin(), db.end());
    results.push_back(dw);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

double Exact(Activation activation, double x) {
  switch (activation) {
    case Activation::kGeluNew:
      return 0.5 * x *
             (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
  }
  return 0;
}

TEST(Activation, ValueAndDerivativeMatchDouble) {
  std::vector<float> x;
  for (double v = -12; v <= 12; v += 0.0173) x.push_back(static_cast<float>(v));
  for (const float v : {-1000.0f, -90.0f, -88.5f, 0.0f, 88.5f, 1000.0f, 1e-20f}) x.push_back(v);
  const std::vector<float> ones(x.size(), 1.0f);
  for (const char* name : {"gelu_new", "gelu", "relu", "silu", "tanh"}) {
    const Activation activation = *ParseActivation(name);
    EXPECT_EQ(ToText(activation), name);
    std::vector<float> y(x.size()), dx(x.size());
    ActivationForward(activation, static_cast<std::int64_t>(x.size()), x.data(), y.data());
    ActivationBackward(activation, static_cast<std::int64_t>(x.size()), x.data(), ones.data(),
                       dx.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = Exact(activation, x[i]);
      EXPECT_NEAR(y[i], exact, 4e-7 * (1 + std::abs(exact))) << name << " at " << x[i];
      if (activation == Activation::kRelu && std::abs(x[i]) < 1e-3) continue;  // a corner
      const double h = 1e-5;
      const double derivative =
          (Exact(activation, x[i] + h) - Exact(activation, x[i] - h)) / (2 * h);
      EXPECT_NEAR(dx[i], derivative, 2e-6) << name << " at " << x[i];
    }
  }
  EXPECT_FALSE(ParseActivation("swish").has_value());
}

TEST(CrossEntropy, LossAndGradientMatchDouble) {
  for (const std::int64_t V : {1, 2, 31, 50257}) {
    const std::int64_t rows = 4;
    const auto logits = RandomValues(rows * V, 7, 5.0);
    const std::vector<std::int32_t> targets = {0, static_cast<std::int32_t>(V - 1), -1,
                                               static_cast<std::int32_t>(V / 2)};
    auto values = logits;
    std::vector<float> loss(rows), loss_only(rows);
    auto untouched = logits;
    CrossEntropy(rows, V, targets.data(), untouched.data(), loss_only.data(), 0.0f);
    EXPECT_EQ(untouched, logits);
    CrossEntropy(rows, V, targets.data(), values.data(), loss.data(), 0.25f);
    EXPECT_EQ(loss, loss_only);
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (std::int64_t v = 0; v < V; ++v)
        sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(r * V + v)]));
      const std::int32_t target = targets[static_cast<std::size_t>(r)];
      const double exact =
          target < 0 ? 0 : std::log(sum) - logits[static_cast<std::size_t>(r * V + target)];
      EXPECT_NEAR(loss[static_cast<std::size_t>(r)], exact, 2e-6 * (1 + exact));
      for (std::int64_t v = 0; v < V; ++v) {
        const auto at = static_cast<std::size_t>(r * V + v);
        const double gradient =
            target < 0
                ? 0
                : 0.25 * (std::exp(static_cast<double>(logits[at])) / sum - (v == target ? 1 : 0));
        EXPECT_NEAR(values[at], gradient, 1e-6);
      }
    }
  }
}

// Sizes around vectors and pieces; a grid of uniform numbers, of which each draws the token that a
// sum in double says, but for those within rounding of a border.
TEST(DrawFromSoftmax, FollowsTheSumsInDouble) {
  for (const std::int64_t V : {1, 2, 15, 16, 17, 255, 256, 257, 1000, 4096}) {
    const std::vector<float> logits = RandomValues(V, 17, 3.0);
    for (const double temperature : {0.3, 1.0, 2.5}) {
      SCOPED_TRACE(fmt::format("{} logits, temperature {}", V, temperature));
      double total = 0.0;
      std::vector<double> ends;
      for (const float logit : logits) ends.push_back(total += std::exp(logit / temperature));
      for (int i = 0; i <= 500; ++i) {
        const double uniform = i / 500.0;
        const std::int64_t drawn = DrawFromSoftmax(logits, temperature, uniform);
        const auto at = static_cast<std::size_t>(drawn);
        ASSERT_TRUE(drawn >= 0 && drawn < V);
        EXPECT_GE(ends[at] / total, uniform - 1e-6);
        EXPECT_LE(drawn == 0 ? 0.0 : ends[at - 1] / total, uniform + 1e-6);
      }
    }
  }
}

TEST(CrossEntropy, ExtremeLogitsStayFinite) {
  std::vector<float> logits = {1e4f, -1e4f, 0.0f, 1e4f};
  const std::vector<std::int32_t> targets = {1, 1};
  std::vector<float> loss(2);
  CrossEntropy(2, 2, targets.data(), logits.data(), loss.data(), 1.0f);
  EXPECT_FLOAT_EQ(loss[0], 2e4f);
  EXPECT_NEAR(loss[1], 0.0f, 1e-6);
  EXPECT_NEAR(logits[0], 1.0f, 1e-6);
  EXPECT_NEAR(logits[1], -1.0f, 1e-6);
}

TEST(CrossEntropy, NanReachesTheLoss) {
  std::vector<float> logits(40, 0.0f);
  logits[3] = std::nanf("");
  const std::int32_t target = 3;
  float loss = 0;
  CrossEntropy(1, 40, &target, logits.data(), &loss, 0.0f);
  EXPECT_TRUE(std::isnan(loss));
}

TEST(AdamW, MatchesDoubleOverSteps) {
  const std::int64_t n = 1003;
  auto w = RandomValues(n, 1);
  std::vector<double> w_ref(w.begin(), w.end()), m_ref(w.size()), v_ref(w.size());
  std::vector<float> m(w.size()), v(w.size());
  const AdamW options{.lr = 3e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .decay = 0.1f};
  for (std::int64_t t = 1; t <= 5; ++t) {
    auto g = RandomValues(n, 100 + static_cast<std::uint64_t>(t));
    const auto gradient = g;
    AdamWStep(options, t, 0.5f, n, w.data(), g.data(), m.data(), v.data());
    for (std::size_t i = 0; i < w.size(); ++i) {
      EXPECT_EQ(g[i], 0.0f);
      const double x = 0.5 * gradient[i];
      m_ref[i] = 0.9f * m_ref[i] + (1.0 - 0.9f) * x;
      v_ref[i] = 0.95f * v_ref[i] + (1.0 - 0.95f) * x * x;
      const double first = m_ref[i] / (1 - std::pow(0.9f, static_cast<double>(t)));
      const double second = v_ref[i] / (1 - std::pow(0.95f, static_cast<double>(t)));
      w_ref[i] = w_ref[i] * (1 - 3e-3f * 0.1f) - 3e-3f * first / (std::sqrt(second) + 1e-8);
      EXPECT_NEAR(w[i], w_ref[i], 2e-6);
    }
  }
}

TEST(ReduceRows, AnyNumberOfSums) {
  const std::int64_t rows = 300, width = 5;
  for (const std::int64_t count : {1, 2, 4, 5, 9, 40}) {
    std::vector<float> totals(static_cast<std::size_t>(count * width), 1.0f);
    std::vector<float*> sums;
    for (std::int64_t s = 0; s < count; ++s) sums.push_back(totals.data() + s * width);
    ReduceRows(rows, width, sums, [&](std::int64_t first, std::int64_t last, float* partial) {
      for (std::int64_t row = first; row < last; ++row) {
        for (std::int64_t i = 0; i < count * width; ++i) partial[i] += static_cast<float>(i);
      }
    });
    for (std::int64_t i = 0; i < count * width; ++i) {
      EXPECT_EQ(totals[static_cast<std::size_t>(i)], 1.0f + static_cast<float>(rows * i)) << count;
    }
  }
}

TEST(AdamW, ResultsDoNotDependOnThreads) {
  const std::int64_t n = 70001;
  std::vector<std::vector<float>> results;
  std::vector<double> squares;
  for (const int count : {1, 2, 3}) {
    const UseThreads scope(count);
    auto w = RandomValues(n, 1), g = RandomValues(n, 2);
    std::vector<float> m(w.size()), v(w.size());
    squares.push_back(SumOfSquares(n, g.data()));
    AdamWStep({}, 1, 1.0f, n, w.data(), g.data(), m.data(), v.data());
    results.push_back(w);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(squares[0], squares[1]);
  EXPECT_EQ(squares[0], squares[2]);
}

}  // namespace
}  // namespace clearhead
