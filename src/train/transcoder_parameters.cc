// SPDX-License-Identifier: MIT
#include "train/transcoder_parameters.h"

#include <algorithm>
#include <cmath>

#include "core/buffer.h"
#include "core/checked.h"
#include "core/random.h"
#include "core/threads.h"

namespace clearhead {

std::int64_t ParameterCount(const TranscoderShape& s) {
  std::int64_t count = 0;
  for (std::int64_t l = 0; l < s.layers; ++l) {
    const std::int64_t row = s.width * (1 + s.targets(l)) + 1 + (s.thresholds ? 1 : 0);
    count += s.features * row + s.width;
  }
  return count;
}

std::vector<TranscoderTensors> Bind(const TranscoderShape& s, float* block) {
  std::vector<TranscoderTensors> layers(static_cast<std::size_t>(s.layers));
  const auto take = [&block](std::int64_t count) {
    float* first = block;
    block += count;
    return first;
  };
  for (std::int64_t l = 0; l < s.layers; ++l) {
    TranscoderTensors& t = layers[static_cast<std::size_t>(l)];
    t.encoder = take(s.features * s.width);
    t.encoder_bias = take(s.features);
    t.decoder = take(s.features * s.targets(l) * s.width);
    t.decoder_bias = take(s.width);
    if (s.thresholds) t.threshold = take(s.features);
  }
  return layers;
}

void FillStart(const TranscoderShape& s, std::uint64_t seed, float* block) {
  std::fill(block, block + ParameterCount(s), 0.0f);
  const std::vector<TranscoderTensors> layers = Bind(s, block);
  ParallelFor(s.layers * s.features, [&](std::int64_t i) {
    const auto l = static_cast<std::size_t>(i / s.features);
    float* row = layers[l].encoder + i % s.features * s.width;
    RandomStream random(HashCoordinates(seed, {2, static_cast<std::uint64_t>(i)}));
    double squares = 0.0;
    for (std::int64_t c = 0; c < s.width; ++c) {
      row[c] = static_cast<float>(random.Normal());
      squares += static_cast<double>(row[c]) * row[c];
    }
    const auto factor = static_cast<float>(1.0 / std::sqrt(squares));
    for (std::int64_t c = 0; c < s.width; ++c) row[c] *= factor;
  });
}

Transcoder FoldUnits(const TranscoderShape& s, const std::vector<TranscoderTensors>& trained,
                     const std::vector<LayerUnits>& units,
                     const std::vector<std::vector<float>>& thresholds,
                     const TranscoderConfig& config) {
  TranscoderShape stored = s;
  stored.thresholds = true;
  const auto memory = std::make_shared<Buffer<float>>(ParameterCount(stored));
  const std::vector<TranscoderTensors> folded = Bind(stored, memory->data());
  const std::int64_t C = s.width, F = s.features;
  Transcoder out{.config = config, .layers = {}, .storage = memory};
  for (std::int64_t l = 0; l < s.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const TranscoderTensors &from = trained[at], &to = folded[at];
    const LayerUnits& in = units[at];
    const std::int64_t targets = s.targets(l);
    ParallelFor(F, [&](std::int64_t f) {
      double bias = from.encoder_bias[f];
      for (std::int64_t c = 0; c < C; ++c) {
        const auto i = static_cast<std::size_t>(c);
        const float w = from.encoder[f * C + c] / in.deviation_in[i];
        to.encoder[f * C + c] = w;
        bias -= static_cast<double>(w) * in.mean_in[i];
      }
      to.encoder_bias[f] = static_cast<float>(bias);
      for (std::int64_t t = 0; t < targets; ++t) {
        const float scale = units[static_cast<std::size_t>(l + t)].scale_out;
        const std::int64_t row = (f * targets + t) * C;
        for (std::int64_t c = 0; c < C; ++c) {
          to.decoder[row + c] = from.decoder[row + c] * scale;
        }
      }
    });
    for (std::int64_t c = 0; c < C; ++c) {
      to.decoder_bias[c] =
          in.mean_out[static_cast<std::size_t>(c)] + in.scale_out * from.decoder_bias[c];
    }
    std::copy(thresholds[at].begin(), thresholds[at].end(), to.threshold);

    TranscoderLayer layer;
    layer.encoder = MakeLinear(Weight(to.encoder), to.encoder_bias, C, F, Order::kOutIn);
    if (config.activation == FeatureActivation::kJumpRelu) layer.threshold = to.threshold;
    for (std::int64_t t = 0; t < targets; ++t) {
      layer.writes.push_back({.rows = Weight(to.decoder + t * C), .stride = targets * C});
    }
    layer.decoder_bias = to.decoder_bias;
    out.layers.push_back(std::move(layer));
  }
  return out;
}

}  // namespace clearhead
