// SPDX-License-Identifier: MIT
// The kernels that families other than the first need, against plain loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_stages.h"
#include "kernels/gated_attention.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/rotary.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

std::vector<float> Normal(std::int64_t count, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

double At(const std::vector<float>& values, std::int64_t i) {
  return static_cast<double>(values[static_cast<std::size_t>(i)]);
}

// A layer stored in any order and type, and its matrix [in, out] as it is after rounding.
struct StoredLayer {
  std::vector<float> f32;
  std::vector<std::byte> bytes;
  std::vector<float> matrix;
  Linear layer;
};

StoredLayer Store(std::int64_t in, std::int64_t out, Order order, DType dtype, const float* bias) {
  StoredLayer stored;
  stored.f32 = Normal(in * out, 7);
  stored.bytes.resize(static_cast<std::size_t>(in * out * DTypeSize(dtype)));
  ConvertFromFloat(stored.f32.data(), in * out, dtype, stored.bytes.data());
  ConvertToFloat(dtype, stored.bytes.data(), in * out, stored.f32.data());
  stored.matrix.resize(stored.f32.size());
  for (std::int64_t i = 0; i < in; ++i) {
    for (std::int64_t o = 0; o < out; ++o) {
      stored.matrix[static_cast<std::size_t>(i * out + o)] =
          stored.f32[static_cast<std::size_t>(order == Order::kInOut ? i * out + o : o * in + i)];
    }
  }
  stored.layer = MakeLinear({stored.bytes.data(), dtype}, bias, in, out, order);
  return stored;
}

TEST(Linear, AnyOrderTypeStrideAndSliceMatchesDouble) {
  const std::int64_t in = 45, out = 70;
  const auto bias = Normal(out, 3);
  for (const Order order : {Order::kInOut, Order::kOutIn}) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const StoredLayer stored = Store(in, out, order, dtype, bias.data());
      for (const std::int64_t rows : {1, 2, 9}) {
        for (const std::int64_t first : {0, 13}) {
          const std::int64_t count = first == 0 ? out : 31;
          const Linear part = first == 0 ? stored.layer : OutputsOf(stored.layer, first, count);
          const std::int64_t x_stride = in + 3, y_stride = count + 5;
          const auto x = Normal(rows * x_stride, 1), dy = Normal(rows * y_stride, 2);
          std::vector<float> y(static_cast<std::size_t>(rows * y_stride), -1.0f);
          std::vector<float> dx(static_cast<std::size_t>(rows * x_stride), 0.5f);
          LinearForward(part, rows, {x.data(), x_stride}, {y.data(), y_stride});
          LinearBackwardInput(part, rows, {dy.data(), y_stride}, {dx.data(), x_stride},
                              /*accumulate=*/true);
          std::vector<float> copied(static_cast<std::size_t>(in * count));
          CopyMatrix(part, copied.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t o = 0; o < count; ++o) {
              double sum = At(bias, first + o);
              for (std::int64_t i = 0; i < in; ++i) {
                sum += At(x, r * x_stride + i) * At(stored.matrix, i * out + first + o);
                EXPECT_EQ(At(copied, i * count + o), At(stored.matrix, i * out + first + o));
              }
              EXPECT_NEAR(At(y, r * y_stride + o), sum, 1e-4);
            }
            EXPECT_EQ(At(y, r * y_stride + count), -1.0);  // what lies between rows stays
            for (std::int64_t i = 0; i < in; ++i) {
              double sum = 0.5;
              for (std::int64_t o = 0; o < count; ++o) {
                sum += At(dy, r * y_stride + o) * At(stored.matrix, i * out + first + o);
              }
              EXPECT_NEAR(At(dx, r * x_stride + i), sum, 1e-4);
            }
          }
        }
      }
    }
  }
}

TEST(Linear, InputSlicesAddUpToTheLayer) {
  const std::int64_t in = 24, out = 11, rows = 5, piece = 8;
  for (const Order order : {Order::kInOut, Order::kOutIn}) {
    const StoredLayer stored = Store(in, out, order, DType::kF32, nullptr);
    const auto x = Normal(rows * in, 1);
    std::vector<float> whole(static_cast<std::size_t>(rows * out)), part(whole.size());
    std::vector<double> sum(whole.size(), 0.0);
    LinearForward(stored.layer, rows, x.data(), whole.data());
    for (std::int64_t first = 0; first < in; first += piece) {
      LinearForward(InputsOf(stored.layer, first, piece), rows, {x.data() + first, in},
                    {part.data(), out});
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(part[i]);
    }
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(whole[i], sum[i], 1e-5);
  }
}

TEST(Linear, WeightGradientsAreStoredAsTheWeightIs) {
  const std::int64_t in = 13, out = 21, rows = 9;
  const auto x = Normal(rows * in, 1), dy = Normal(rows * out, 2);
  for (const Order order : {Order::kInOut, Order::kOutIn}) {
    const StoredLayer stored = Store(in, out, order, DType::kF32, nullptr);
    std::vector<float> dw(static_cast<std::size_t>(in * out), 1.0f);
    LinearBackwardWeight(stored.layer, rows, x.data(), dy.data(), nullptr, dw.data(), nullptr);
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t o = 0; o < out; ++o) {
        double sum = 1.0;  // adds
        for (std::int64_t r = 0; r < rows; ++r) sum += At(x, r * in + i) * At(dy, r * out + o);
        EXPECT_NEAR(At(dw, order == Order::kInOut ? i * out + o : o * in + i), sum, 1e-4);
      }
    }
  }
}

// RMS norm over vectors side by side in wider rows, with and without weight, forward and backward.
TEST(RmsNorm, MatchesDoubleAlsoInGroups) {
  const std::int64_t rows = 6;
  for (const std::int64_t width : {1, 4, 7, 33, 64}) {
    for (const std::int64_t groups : {1, 3}) {
      for (const bool weighted : {true, false}) {
        const std::int64_t stride = groups * width + 5;
        const auto x = Normal(rows * stride, 1), dy = Normal(rows * stride, 2),
                   w = Normal(width, 3);
        const Norm norm{NormKind::kRms, weighted ? w.data() : nullptr, nullptr, width, 1e-3f};
        const NormRows place{rows, groups, stride};
        std::vector<float> y(x.size(), 9.0f), dx(x.size(), 0.25f), mean(rows * groups),
            scale(rows * groups), dw(w.size(), 1.0f);
        NormForward(norm, place, x.data(), y.data(), mean.data(), scale.data());
        NormBackward(norm, place, x.data(), mean.data(), scale.data(), dy.data(), dx.data(),
                     weighted ? dw.data() : nullptr, nullptr);
        std::vector<double> expected_dw(w.size(), 1.0);
        for (std::int64_t v = 0; v < rows * groups; ++v) {
          const std::int64_t at = v / groups * stride + v % groups * width;
          double squares = 0.0;
          for (std::int64_t i = 0; i < width; ++i) squares += At(x, at + i) * At(x, at + i);
          const double s = std::sqrt(squares / static_cast<double>(width) + 1e-3);
          EXPECT_NEAR(At(scale, v), s, 1e-5);
          double mean_gn = 0.0;
          for (std::int64_t i = 0; i < width; ++i) {
            const double weight = weighted ? At(w, i) : 1.0, n = At(x, at + i) / s;
            EXPECT_NEAR(At(y, at + i), n * weight, 1e-5);
            mean_gn += At(dy, at + i) * weight * n / static_cast<double>(width);
            expected_dw[static_cast<std::size_t>(i)] += At(dy, at + i) * n;
          }
          for (std::int64_t i = 0; i < width; ++i) {
            const double g = At(dy, at + i) * (weighted ? At(w, i) : 1.0);
            EXPECT_NEAR(At(dx, at + i), 0.25 + (g - At(x, at + i) / s * mean_gn) / s, 2e-4);
          }
        }
        EXPECT_EQ(y[static_cast<std::size_t>(groups * width)], 9.0f);  // between rows
        for (std::size_t i = 0; weighted && i < dw.size(); ++i) {
          EXPECT_NEAR(dw[i], expected_dw[i], 1e-4);
        }
      }
    }
  }
}

TEST(Rotary, TurnsPairsByTheirAngles) {
  const std::int64_t heads = 3, D = 10, T = 5, batch = 2, stride = heads * D + 4, first = 7;
  std::vector<double> frequencies;
  for (int i = 0; i < D / 2; ++i) frequencies.push_back(std::pow(10000.0, -2.0 * i / D));
  std::vector<float> cos(T * D / 2), sin(T * D / 2);
  RotaryTable(frequencies, first, T, cos.data(), sin.data());
  const RotaryRows place{
      .rows = batch * T, .length = T, .heads = heads, .head_size = D, .stride = stride};
  const auto x = Normal(batch * T * stride, 1);
  auto turned = x;
  Rotate(place, cos.data(), sin.data(), /*inverse=*/false, turned.data());
  for (std::int64_t r = 0; r < batch * T; ++r) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < D / 2; ++i) {
        const double angle =
            static_cast<double>(first + r % T) * frequencies[static_cast<std::size_t>(i)];
        const std::int64_t low = r * stride + h * D + i, high = low + D / 2;
        EXPECT_NEAR(At(turned, low), At(x, low) * std::cos(angle) - At(x, high) * std::sin(angle),
                    1e-6);
        EXPECT_NEAR(At(turned, high), At(x, high) * std::cos(angle) + At(x, low) * std::sin(angle),
                    1e-6);
      }
    }
    EXPECT_EQ(At(turned, r * stride + heads * D), At(x, r * stride + heads * D));
  }
  Rotate(place, cos.data(), sin.data(), /*inverse=*/true, turned.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(turned[i], x[i], 1e-6);
}

TEST(GatedActivation, MatchesTheProductAndItsDifferences) {
  for (const Activation f : {Activation::kSilu, Activation::kGelu, Activation::kGeluNew}) {
    const std::int64_t n = 37;
    const auto x = Normal(n, 1), linear = Normal(n, 2), dy = Normal(n, 3);
    std::vector<float> plain(x.size()), y(x.size()), dx = dy, dlinear(x.size()), slope(x.size()),
                                                     ones(x.size(), 1.0f);
    ActivationForward(f, n, x.data(), plain.data());
    ActivationBackward(f, n, x.data(), ones.data(), slope.data());
    GatedActivationForward(f, n, x.data(), linear.data(), y.data());
    GatedActivationBackward(f, n, x.data(), linear.data(), dx.data(), dx.data(), dlinear.data());
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_NEAR(At(y, i), At(plain, i) * At(linear, i), 1e-6);
      EXPECT_NEAR(At(dx, i), At(dy, i) * At(linear, i) * At(slope, i), 1e-5);
      EXPECT_NEAR(At(dlinear, i), At(dy, i) * At(plain, i), 1e-6);
    }
  }
}

// Heads that share keys and values give the bits of heads that have copies of them.
TEST(SharedHeads, EqualRepeatedOnes) {
  const std::int64_t B = 2, T = 37, H = 6, K = 2, D = 12, share = H / K;
  const AttentionShape shape{
      .batch = B, .heads = H, .queries = T, .keys = T, .head_size = D, .scale = 0.3f};
  const auto q = Normal(B * T * H * D, 1), k = Normal(B * T * K * D, 2),
             v = Normal(B * T * K * D, 3), dz = Normal(B * T * H * D, 4);
  const auto repeat = [&](const std::vector<float>& from) {
    std::vector<float> to(static_cast<std::size_t>(B * T * H * D));
    for (std::int64_t i = 0; i < B * T * H * D; ++i) {
      const std::int64_t d = i % D, h = i / D % H, row = i / D / H;
      to[static_cast<std::size_t>(i)] =
          from[static_cast<std::size_t>((row * K + h / share) * D + d)];
    }
    return to;
  };
  const auto k_all = repeat(k), v_all = repeat(v);
  const auto rows = [&](const float* data, std::int64_t heads, std::int64_t shared) {
    return HeadRows<const float>{data, heads * D, T * heads * D, shared};
  };
  const AttentionInput grouped{rows(q.data(), H, 1), rows(k.data(), K, share),
                               rows(v.data(), K, share)};
  const AttentionInput plain{rows(q.data(), H, 1), rows(k_all.data(), H, 1),
                             rows(v_all.data(), H, 1)};
  struct Result {
    std::vector<float> z, lse, dq, dk, dv, pattern;
  };
  const auto run = [&](const AttentionInput& input, bool gated) {
    const auto size = static_cast<std::size_t>(B * T * H * D);
    Result r{std::vector<float>(size), std::vector<float>(static_cast<std::size_t>(B * H * T)),
             std::vector<float>(size), std::vector<float>(size),
             std::vector<float>(size), std::vector<float>(static_cast<std::size_t>(B * H * T * T))};
    const HeadRows<float> z{r.z.data(), H * D, T * H * D};
    const AttentionGradients d{{r.dq.data(), H * D, T * H * D},
                               {r.dk.data(), H * D, T * H * D},
                               {r.dv.data(), H * D, T * H * D}};
    const AttentionOutput output{z, r.lse.data()};
    const GateOptions gate{.bias = 0.2f};
    if (gated) {
      GatedAttentionForward(shape, input, gate, z, r.lse.data(), {});
      GatedAttentionBackward(shape, input, gate, 0.01f, output, rows(dz.data(), H, 1), d);
    } else {
      AttentionForward(shape, input, z, r.lse.data());
      AttentionBackward(shape, input, output, rows(dz.data(), H, 1), d);
    }
    AttentionPattern(shape, input.q, input.k, r.pattern.data());
    return r;
  };
  for (const bool gated : {false, true}) {
    const Result a = run(grouped, gated), b = run(plain, gated);
    EXPECT_EQ(a.z, b.z);
    EXPECT_EQ(a.dq, b.dq);
    EXPECT_EQ(a.dk, b.dk);
    EXPECT_EQ(a.dv, b.dv);
    EXPECT_EQ(a.pattern, b.pattern);
  }
}

}  // namespace
}  // namespace clearhead
