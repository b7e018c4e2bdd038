// SPDX-License-Identifier: MIT
#include "heads/composition.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/model_testing.h"

namespace clearhead {
namespace {

using Matrix = std::vector<double>;

Matrix Times(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t k, std::int64_t n) {
  Matrix c(static_cast<std::size_t>(m * n), 0.0);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t p = 0; p < k; ++p) {
        c[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(i * k + p)] * b[static_cast<std::size_t>(p * n + j)];
      }
    }
  }
  return c;
}

Matrix Transposed(const Matrix& a, std::int64_t m, std::int64_t n) {
  Matrix t(a.size());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      t[static_cast<std::size_t>(j * m + i)] = a[static_cast<std::size_t>(i * n + j)];
    }
  }
  return t;
}

double Norm(const Matrix& a) {
  double sum = 0;
  for (const double x : a) sum += x * x;
  return std::sqrt(sum);
}

// The full C x C matrices.
struct Circuits {
  Matrix ov, qk;
};
Circuits CircuitsOf(const Model& model, HeadId id) {
  const std::int64_t C = model.config.width, D = model.config.head_size();
  const auto& block = model.weights.blocks[static_cast<std::size_t>(id.layer)];
  Matrix parts[3], w_o;
  for (int part = 0; part < 3; ++part) {
    for (std::int64_t c = 0; c < C; ++c) {
      for (std::int64_t d = 0; d < D; ++d) {
        parts[part].push_back(
            block[Role::kQkvWeight].f32()[c * 3 * C + part * C + id.head * D + d]);
      }
    }
  }
  for (std::int64_t d = 0; d < D; ++d) {
    for (std::int64_t c = 0; c < C; ++c)
      w_o.push_back(block[Role::kProjectionWeight].f32()[(id.head * D + d) * C + c]);
  }
  return {Times(parts[2], w_o, C, D, C), Times(parts[0], Transposed(parts[1], C, D), C, D, C)};
}

TEST(Composition, EqualsTheDefinition) {
  ModelConfig config = OddConfig();
  config.layers = 3;
  const Model model = LivelyModel(config, 8);
  const Composition composition = ComposeHeads(model, 1);
  const std::int64_t C = config.width, H = config.heads, all = config.layers * H;
  for (std::int64_t from = 0; from < all; ++from) {
    for (std::int64_t to = 0; to < all; ++to) {
      const auto at = static_cast<std::size_t>(from * all + to);
      if (from / H >= to / H) {
        for (const auto& scores : composition.scores) EXPECT_EQ(scores[at], 0);
        continue;
      }
      const Circuits a = CircuitsOf(model, {from / H, from % H}),
                     b = CircuitsOf(model, {to / H, to % H});
      const Matrix readers[3] = {b.qk, Transposed(b.qk, C, C), b.ov};
      for (std::size_t kind = 0; kind < 3; ++kind) {
        const double expected =
            Norm(Times(a.ov, readers[kind], C, C, C)) / (Norm(a.ov) * Norm(readers[kind]));
        EXPECT_NEAR(composition.scores[kind][at], expected, 1e-5)
            << from << " " << to << " " << kind;
      }
    }
  }
  for (const CompositionCount& count : composition.counts) EXPECT_EQ(count.pairs, 27);
  for (std::size_t i = 1; i < composition.strongest.size(); ++i) {
    EXPECT_GE(composition.strongest[i - 1].score, composition.strongest[i].score);
  }
}

TEST(Composition, RandomWeightsScoreTheBaseline) {
  ModelConfig config;
  config.layers = 3;
  config.heads = 4;
  config.width = 64;
  config.inner = 64;
  config.vocabulary = 5;
  config.positions = 3;
  const Composition composition = ComposeHeads(RandomModel(config, 3), 1);
  EXPECT_NEAR(composition.baseline, 1 / std::sqrt(64.0), 0.01);
  for (const CompositionCount& count : composition.counts) {
    EXPECT_NEAR(count.mean_excess, 0, 0.004);
    EXPECT_EQ(count.strong, 0);
    EXPECT_EQ(count.pairs, 48);
  }
}

TEST(Composition, FindsAPlantedPair) {
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = 16;
  config.inner = 16;
  config.vocabulary = 5;
  config.positions = 3;
  std::vector<float> parameters = LivelyParameters(config, 2);
  ModelValues tensors = BindContiguous(config, parameters.data());
  // Keys of L1H1 read exactly the directions that L0H0 writes.
  for (std::int64_t c = 0; c < 16; ++c) {
    for (std::int64_t d = 0; d < 8; ++d) {
      tensors.blocks[1][Role::kQkvWeight][c * 48 + 16 + 8 + d] =
          3 * tensors.blocks[0][Role::kProjectionWeight][d * 16 + c];
    }
  }
  const Composition composition = ComposeHeads(ModelOf(config, parameters), 1);
  EXPECT_EQ(composition.strongest[0].kind, CompositionKind::kKey);
  EXPECT_EQ(composition.strongest[0].from, (HeadId{0, 0}));
  EXPECT_EQ(composition.strongest[0].to, (HeadId{1, 1}));
}

TEST(Composition, HeadsWithoutWeightsScoreZero) {
  ModelConfig config = OddConfig();
  const Composition composition = ComposeHeads(
      ModelOf(config, std::vector<float>(static_cast<std::size_t>(config.ParameterCount()), 0.0f)),
      1);
  for (const float score : composition.scores[0]) EXPECT_EQ(score, 0);
}

}  // namespace
}  // namespace clearhead
