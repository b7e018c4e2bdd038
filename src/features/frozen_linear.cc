// SPDX-License-Identifier: MIT
#include "features/frozen_linear.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/threads.h"
#include "model/head_weights.h"

namespace clearhead {
namespace {

float* Sized(Buffer<float>& buffer, std::int64_t size) {
  if (buffer.size() < size) buffer = Buffer<float>(size);
  return buffer.data();
}

// The sum of term(0) .. term(n-1) in sixteen lanes, which the compiler makes into vectors.
template <typename Term>
double LaneSum(std::int64_t n, const Term& term) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[static_cast<std::size_t>(j)] += term(i + j);
  }
  double sum = 0.0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += term(i);
  return sum;
}

double Dot(std::int64_t n, const float* a, const float* b) {
  return LaneSum(n, [&](std::int64_t i) { return a[i] * b[i]; });
}

template <typename Term>
float Mean(std::int64_t n, const Term& term) {
  return static_cast<float>(LaneSum(n, term) / static_cast<double>(n));
}

bool NormsBefore(const FrozenPrompt& run) { return run.config().norm_place == NormPlace::kBefore; }

const FrozenLayer& LayerOf(const FrozenPrompt& run, std::int64_t layer) {
  return run.layers[static_cast<std::size_t>(layer)];
}

const TranscoderLayer* FeaturesOf(const FrozenPrompt& run, std::int64_t layer) {
  return run.transcoder == nullptr ? nullptr
                                   : &run.transcoder->layers[static_cast<std::size_t>(layer)];
}

// The norm between mid and what encoder and skip read; null where they read the stream.
const Norm* ReadNorm(const FrozenPrompt& run, const BlockLayers& layers) {
  return run.transcoder->config.reads == Tap::kLn2Normalized ? &layers.mlp_norm : nullptr;
}

Linear WithoutBias(Linear layer) {
  layer.bias = nullptr;
  return layer;
}

// bias[target] += the target's rows . vector, for every target. Sums do not depend on threads.
void AddDots(const TargetRows& shape, std::int64_t width, const float* rows, const float* vector,
             std::span<double> bias, SweepScratch& scratch) {
  if (vector == nullptr) return;
  float* dots = Sized(scratch.dots, shape.rows());
  ParallelRanges(
      shape.rows(),
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t r = first; r < last; ++r) {
          dots[r] = static_cast<float>(Dot(width, rows + r * width, vector));
        }
      },
      LeastRows(width));
  for (std::int64_t p = 0; p < shape.reach(); ++p) {
    for (std::int64_t t = shape.first(p); t < shape.targets(); ++t) {
      bias[static_cast<std::size_t>(t)] += dots[shape.RowOf(t, p)];
    }
  }
}

// Backward of a norm for every row, at the divisor of its position.
void NormRowsBackward(const TargetRows& shape, const Norm& norm, const Buffer<float>& scale,
                      const float* dy, float* dx, bool accumulate) {
  ParallelFor(shape.reach(), [&](std::int64_t p) {
    for (std::int64_t r = shape.begin(p); r < shape.begin(p) + shape.count(p); ++r) {
      FrozenNormBackward(norm, scale[p], dy + r * norm.width, dx + r * norm.width, accumulate);
    }
  });
}

// d_values[k] = sum over q and the heads of a group of A[q,k] d_heads[q]: the pairs with a weight.
void WeightsBackward(const FrozenPrompt& run, std::int64_t layer, const TargetRows& shape,
                     const float* d_heads, float* d_values) {
  const ModelConfig& config = run.config();
  const std::int64_t T = run.length(), H = config.heads, K = config.kv_heads();
  const std::int64_t D = config.head_size(), share = H / K;
  const float* weights = LayerOf(run, layer).weights.data();
  ParallelFor(shape.reach() * K, [&](std::int64_t item) {
    const std::int64_t k = item / K, group = item % K;
    for (std::int64_t r = shape.begin(k); r < shape.begin(k) + shape.count(k); ++r) {
      std::fill_n(d_values + (r * K + group) * D, D, 0.0f);
    }
    for (std::int64_t h = group * share; h < (group + 1) * share; ++h) {
      for (std::int64_t q = k; q < shape.reach(); ++q) {
        const float weight = weights[(h * T + q) * T + k];
        if (weight == 0.0f) continue;
        for (std::int64_t t = shape.first(q); t < shape.targets(); ++t) {
          const float* from = d_heads + (shape.RowOf(t, q) * H + h) * D;
          float* to = d_values + (shape.RowOf(t, k) * K + group) * D;
          for (std::int64_t i = 0; i < D; ++i) to[i] += weight * from[i];
        }
      }
    }
  });
}

}  // namespace

TargetRows::TargetRows(std::span<const std::int64_t> positions, std::int64_t width)
    : targets_(static_cast<std::int64_t>(positions.size())), width_(width) {
  Check(std::is_sorted(positions.begin(), positions.end()), "targets are sorted by position");
  begin_.push_back(0);
  const std::int64_t reach = positions.empty() ? 0 : positions.back() + 1;
  for (std::int64_t p = 0; p < reach; ++p) {
    first_.push_back(std::lower_bound(positions.begin(), positions.end(), p) - positions.begin());
    begin_.push_back(begin_.back() + count(p));
  }
  values_ = Buffer<float>(rows() * width);
  std::fill(values_.begin(), values_.end(), 0.0f);
}

void FrozenMlpBackward(const FrozenPrompt& run, std::int64_t layer, TargetRows& gradient,
                       std::span<double> bias, SweepScratch& scratch) {
  const TranscoderLayer* features = FeaturesOf(run, layer);
  if (features == nullptr) return;
  const std::int64_t C = run.config().width;
  AddDots(gradient, C, gradient.data(), features->decoder_bias, bias, scratch);
  if (!features->skip) return;
  const BlockLayers layers = LayersOf(*run.model, layer);
  float* branch = Sized(scratch.branch, gradient.rows() * C);
  LinearBackwardInput(*features->skip, gradient.rows(), gradient.data(), branch);
  if (const Norm* norm = ReadNorm(run, layers); norm != nullptr) {
    AddDots(gradient, C, branch, norm->bias, bias, scratch);
    NormRowsBackward(gradient, *norm, LayerOf(run, layer).ln2_scale, branch, gradient.data(),
                     /*accumulate=*/true);
  } else {
    for (std::int64_t i = 0; i < gradient.rows() * C; ++i) gradient.data()[i] += branch[i];
  }
}

void FrozenAttentionBackward(const FrozenPrompt& run, std::int64_t layer, TargetRows& gradient,
                             std::span<double> bias, SweepScratch& scratch) {
  const ModelConfig& config = run.config();
  const std::int64_t R = gradient.rows(), C = config.width;
  const BlockLayers layers = LayersOf(*run.model, layer);
  const Linear& output = layers.output.linear;
  const Linear value = PartOf(layers, config, 2);
  const Buffer<float>& scale = LayerOf(run, layer).ln1_scale;
  float* branch = Sized(scratch.branch, R * C);
  float* heads = Sized(scratch.heads, R * config.heads_width());
  float* values = Sized(scratch.values, R * config.kv_width());
  // mid = pre + attention, or pre + norm(attention)
  const float* d_out = gradient.data();
  if (!NormsBefore(run)) {
    AddDots(gradient, C, gradient.data(), layers.attention_norm.bias, bias, scratch);
    NormRowsBackward(gradient, layers.attention_norm, scale, gradient.data(), branch,
                     /*accumulate=*/false);
    d_out = branch;
  }
  // attention = z W_O + b_O
  AddDots(gradient, C, d_out, output.bias, bias, scratch);
  LinearBackwardInput(output, R, d_out, heads);
  // z[q] = sum over k of A[q,k] v[k]
  WeightsBackward(run, layer, gradient, heads, values);
  // v = in W_V + b_V
  AddDots(gradient, config.kv_width(), values, value.bias, bias, scratch);
  if (NormsBefore(run)) {
    // in = norm(pre), which joins the stream
    LinearBackwardInput(value, R, values, branch);
    AddDots(gradient, C, branch, layers.attention_norm.bias, bias, scratch);
    NormRowsBackward(gradient, layers.attention_norm, scale, branch, gradient.data(),
                     /*accumulate=*/true);
  } else {
    LinearBackwardInput(value, R, {values, config.kv_width()}, {gradient.data(), C},
                        /*accumulate=*/true);
  }
}

void FrozenAttentionForward(const FrozenPrompt& run, std::int64_t layer, float* u) {
  const ModelConfig& config = run.config();
  const std::int64_t T = run.length(), C = config.width, H = config.heads, D = config.head_size();
  const std::int64_t K = config.kv_heads();
  const BlockLayers layers = LayersOf(*run.model, layer);
  const FrozenLayer& frozen = LayerOf(run, layer);
  Buffer<float> values(T * K * D), z(T * H * D), out(T * C);
  ValuesOfRows(run, layer, {}, T, u, values.data());
  std::fill(z.begin(), z.end(), 0.0f);
  ParallelFor(H, [&](std::int64_t h) {
    for (std::int64_t q = 0; q < T; ++q) {
      for (std::int64_t k = 0; k <= q; ++k) {
        const float weight = frozen.weights[(h * T + q) * T + k];
        if (weight == 0.0f) continue;
        const float* from = values.data() + (k * K + h / (H / K)) * D;
        float* to = z.data() + (q * H + h) * D;
        for (std::int64_t i = 0; i < D; ++i) to[i] += weight * from[i];
      }
    }
  });
  LinearForward(WithoutBias(layers.output.linear), T, z.data(), out.data());
  for (std::int64_t p = 0; p < T && !NormsBefore(run); ++p) {
    FrozenNormForward(layers.attention_norm, frozen.ln1_scale[p], out.data() + p * C,
                      out.data() + p * C);
  }
  for (std::int64_t i = 0; i < T * C; ++i) u[i] += out[i];
}

void FrozenMlpForward(const FrozenPrompt& run, std::int64_t layer, float* u) {
  AddSkips(run, layer, {}, run.length(), u);
}

void EncoderGradient(const FrozenPrompt& run, std::int64_t layer, std::int64_t position,
                     std::int64_t feature, float* gradient, double& bias) {
  EncoderRow(*run.transcoder, layer, feature, gradient);
  bias += FeaturesOf(run, layer)->encoder.bias[feature];
  const BlockLayers layers = LayersOf(*run.model, layer);
  const Norm* norm = ReadNorm(run, layers);
  if (norm == nullptr) return;
  if (norm->bias != nullptr) bias += Dot(norm->width, gradient, norm->bias);
  FrozenNormBackward(*norm, LayerOf(run, layer).ln2_scale[position], gradient, gradient,
                     /*accumulate=*/false);
}

void FinalGradient(const FrozenPrompt& run, std::int64_t position, std::span<const float> direction,
                   float* gradient, double& bias) {
  const Norm norm = FinalNormOf(*run.model);
  if (norm.bias != nullptr) bias += Dot(norm.width, direction.data(), norm.bias);
  FrozenNormBackward(norm, run.final_scale[position], direction.data(), gradient,
                     /*accumulate=*/false);
}

void ValuesOfRows(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
                  const float* rows, float* values) {
  const std::int64_t C = run.config().width;
  const BlockLayers layers = LayersOf(*run.model, layer);
  const Linear value = WithoutBias(PartOf(layers, run.config(), 2));
  if (!NormsBefore(run)) return LinearForward(value, n, rows, values);
  Buffer<float> in(n * C);
  for (std::int64_t r = 0; r < n; ++r) {
    FrozenNormForward(layers.attention_norm, LayerOf(run, layer).ln1_scale[places[r]], rows + r * C,
                      in.data() + r * C);
  }
  LinearForward(value, n, in.data(), values);
}

void HeadGradientsOfRows(const FrozenPrompt& run, std::int64_t layer, RowPlaces places,
                         std::int64_t n, const float* rows, float* heads) {
  const std::int64_t C = run.config().width;
  const BlockLayers layers = LayersOf(*run.model, layer);
  if (NormsBefore(run)) return LinearBackwardInput(layers.output.linear, n, rows, heads);
  Buffer<float> raw(n * C);
  for (std::int64_t r = 0; r < n; ++r) {
    FrozenNormBackward(layers.attention_norm, LayerOf(run, layer).ln1_scale[places[r]],
                       rows + r * C, raw.data() + r * C, /*accumulate=*/false);
  }
  LinearBackwardInput(layers.output.linear, n, raw.data(), heads);
}

void AddSkips(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
              float* rows) {
  const TranscoderLayer* features = FeaturesOf(run, layer);
  if (features == nullptr || !features->skip) return;
  const std::int64_t C = run.config().width;
  const BlockLayers layers = LayersOf(*run.model, layer);
  const Norm* norm = ReadNorm(run, layers);
  Buffer<float> in(n * C), out(n * C);
  std::copy(rows, rows + n * C, in.data());
  for (std::int64_t r = 0; r < n && norm != nullptr; ++r) {
    FrozenNormForward(*norm, LayerOf(run, layer).ln2_scale[places[r]], rows + r * C,
                      in.data() + r * C);
  }
  LinearForward(*features->skip, n, in.data(), out.data());
  for (std::int64_t i = 0; i < n * C; ++i) rows[i] += out[i];
}

void AddSkipsBackward(const FrozenPrompt& run, std::int64_t layer, RowPlaces places, std::int64_t n,
                      float* rows) {
  const TranscoderLayer* features = FeaturesOf(run, layer);
  if (features == nullptr || !features->skip) return;
  const std::int64_t C = run.config().width;
  const BlockLayers layers = LayersOf(*run.model, layer);
  const Norm* norm = ReadNorm(run, layers);
  Buffer<float> in(n * C);
  LinearBackwardInput(*features->skip, n, rows, in.data());
  for (std::int64_t r = 0; r < n && norm != nullptr; ++r) {
    FrozenNormBackward(*norm, LayerOf(run, layer).ln2_scale[places[r]], in.data() + r * C,
                       in.data() + r * C, /*accumulate=*/false);
  }
  for (std::int64_t i = 0; i < n * C; ++i) rows[i] += in[i];
}

void FrozenNormForward(const Norm& norm, float scale, const float* x, float* y) {
  const auto value = [&](std::int64_t i) { return x[i]; };
  const float centre = norm.kind == NormKind::kLayer ? Mean(norm.width, value) : 0.0f;
  for (std::int64_t i = 0; i < norm.width; ++i) {
    y[i] = (x[i] - centre) / scale * (norm.weight == nullptr ? 1.0f : norm.weight[i]);
  }
}

void FrozenNormBackward(const Norm& norm, float scale, const float* dy, float* dx,
                        bool accumulate) {
  const auto gained = [&](std::int64_t i) {
    return norm.weight == nullptr ? dy[i] : dy[i] * norm.weight[i];
  };
  const float centre = norm.kind == NormKind::kLayer ? Mean(norm.width, gained) : 0.0f;
  for (std::int64_t i = 0; i < norm.width; ++i) {
    const float d = (gained(i) - centre) / scale;
    dx[i] = accumulate ? dx[i] + d : d;
  }
}

}  // namespace clearhead
