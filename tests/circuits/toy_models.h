// SPDX-License-Identifier: MIT
// Models built by hand whose circuits are known.
#pragma once

#include <functional>

#include "circuits/circuit_testing.h"

namespace clearhead {

// With an epsilon far above every variance, a layer norm divides by one constant, which its gain
// undoes: it only centres.
inline constexpr float kLinearNormEpsilon = 1e10f;
inline constexpr float kLinearNormGain = 1e5f;

inline Model BuiltModel(const ModelConfig& config, std::vector<float> values,
                        const std::function<void(ModelValues&)>& build) {
  ModelValues tensors = BindContiguous(config, values.data());
  const auto norm = [&](float* gain, float* bias) {
    std::fill(gain, gain + config.width, kLinearNormGain);
    std::fill(bias, bias + config.width, 0.0f);
  };
  for (RoleTensors<float*>& block : tensors.blocks) {
    norm(block[Role::kAttentionNormWeight], block[Role::kAttentionNormBias]);
    norm(block[Role::kMlpNormWeight], block[Role::kMlpNormBias]);
  }
  norm(tensors(Role::kFinalNormWeight), tensors(Role::kFinalNormBias));
  build(tensors);
  return ModelOf(config, std::move(values));
}

// Every step is linear in the embeddings: norms that only centre, attention with scores of 0, MLPs
// whose units are always on.
inline Model LinearModel(ModelConfig config) {
  config.norm_epsilon = kLinearNormEpsilon;
  config.activation = Activation::kRelu;
  return BuiltModel(config, LivelyParameters(config, 8), [&](ModelValues& tensors) {
    for (RoleTensors<float*>& block : tensors.blocks) {
      for (std::int64_t row = 0; row < config.width; ++row) {
        float* columns = block[Role::kQkvWeight] + row * 3 * config.width;
        std::fill(columns, columns + 2 * config.width, 0.0f);
      }
      std::fill(block[Role::kQkvBias], block[Role::kQkvBias] + 2 * config.width, 0.0f);
      std::fill(block[Role::kMlpInBias], block[Role::kMlpInBias] + config.inner, 30.0f);
    }
  });
}

// A two-layer induction circuit: L0H0 writes the previous token, L1H1 looks for the token after an
// earlier copy of the current one and predicts it. The stream has room for four one-hot codes:
// token, position, previous token, prediction. The other heads and the MLPs do a little noise.
inline constexpr std::int64_t kInductionTokens = 8;

// `tokens`: the ids with a code; the other ids of the vocabulary mean nothing.
inline Model InductionModel(AttentionKind attention,
                            const std::vector<std::int32_t>& tokens = {0, 1, 2, 3, 4, 5, 6, 7},
                            std::int64_t vocabulary = kInductionTokens) {
  constexpr std::int64_t N = kInductionTokens, C = 4 * N, D = C / 2;
  constexpr std::int64_t kToken = 0, kPosition = N, kPrevious = 2 * N, kPrediction = 3 * N;
  constexpr float kSharp = 20.0f;  // scores of 20 / sqrt(16) = 5 where it matters, else about 0
  ModelConfig config;
  config.layers = 2;
  config.heads = 2;
  config.width = C;
  config.inner = 12;
  config.vocabulary = vocabulary;
  config.positions = N;
  config.tied = false;
  config.norm_epsilon = kLinearNormEpsilon;
  config.attention = attention;
  config.gate_bias = -2.5f;  // gates open only where a built head means it
  std::vector<float> noise;
  RandomStream random(6);
  for (std::int64_t i = 0; i < config.ParameterCount(); ++i) {
    noise.push_back(static_cast<float>(0.01 * random.Normal()));
  }
  return BuiltModel(config, noise, [&](ModelValues& tensors) {
    const auto clear_head = [&](RoleTensors<float*>& block, std::int64_t h) {
      for (std::int64_t part = 0; part < 3; ++part) {
        for (std::int64_t d = 0; d < D; ++d) {
          const std::int64_t column = part * C + h * D + d;
          block[Role::kQkvBias][column] = 0.0f;
          for (std::int64_t row = 0; row < C; ++row)
            block[Role::kQkvWeight][row * 3 * C + column] = 0;
        }
      }
      std::fill(block[Role::kProjectionWeight] + h * D * C,
                block[Role::kProjectionWeight] + (h + 1) * D * C, 0.0f);
    };
    const auto connect = [&](RoleTensors<float*>& block, std::int64_t h, std::int64_t part,
                             std::int64_t from, std::int64_t slot, float value) {
      block[Role::kQkvWeight][from * 3 * C + part * C + h * D + slot] = value;
    };
    const auto write = [&](RoleTensors<float*>& block, std::int64_t h, std::int64_t slot,
                           std::int64_t to, float value) {
      block[Role::kProjectionWeight][(h * D + slot) * C + to] = value;
    };
    std::fill(tensors(Role::kTokenEmbedding), tensors(Role::kTokenEmbedding) + vocabulary * C,
              0.0f);
    std::fill(tensors(Role::kPositionEmbedding), tensors(Role::kPositionEmbedding) + N * C, 0.0f);
    RoleTensors<float*>&previous = tensors.blocks[0], &induction = tensors.blocks[1];
    clear_head(previous, 0);
    clear_head(induction, 1);
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t id = tokens[static_cast<std::size_t>(n)];
      tensors(Role::kTokenEmbedding)[id * C + kToken + n] = 1.0f;
      tensors(Role::kPositionEmbedding)[n * C + kPosition + n] = 1.0f;
      OutputMatrix(config, tensors)[id * C + kPrediction + n] += 5.0f;
      if (n > 0) connect(previous, 0, 0, kPosition + n, n - 1, kSharp);
      connect(previous, 0, 1, kPosition + n, n, 1.0f);
      connect(previous, 0, 2, kToken + n, n, 1.0f);
      write(previous, 0, n, kPrevious + n, 1.0f);
      connect(induction, 1, 0, kToken + n, n, kSharp);
      connect(induction, 1, 1, kPrevious + n, n, 1.0f);
      connect(induction, 1, 2, kToken + n, n, 1.0f);
      write(induction, 1, n, kPrediction + n, 2.0f);
    }
  });
}

// x a b c d a -> b, with the a in any place but the first and last two, and the twin's first a
// another token; tokens differ otherwise.
inline TaskSet InductionTask(std::int64_t count, std::uint64_t seed) {
  TaskSet set{.name = "built induction"};
  RandomStream random(seed);
  for (std::int64_t n = 0; n < count; ++n) {
    std::vector<std::int32_t> tokens(kInductionTokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::size_t i = tokens.size() - 1; i > 0; --i) {
      std::swap(tokens[i], tokens[random.Below(i + 1)]);
    }
    // Not at the first place: there L0H0 has no token before and sees the token itself.
    const std::size_t length = 5 + random.Below(2), place = 1 + random.Below(length - 3);
    TaskItem item;
    item.clean.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    item.clean.push_back(item.clean[place]);
    item.corrupted = item.clean;
    item.corrupted[place] = tokens.back();
    item.answers = {item.clean[place + 1]};
    item.wrongs = {item.clean[place + 2]};
    set.items.push_back(item);
  }
  return set;
}

}  // namespace clearhead
