// SPDX-License-Identifier: MIT
#include "features/stream_vectors.h"

#include <algorithm>

#include "core/error.h"
#include "features/frozen_linear.h"

namespace clearhead {
namespace {

void AddTo(StreamVectors& vectors, std::int64_t layer, std::int64_t position,
           std::span<const float> values) {
  const auto same = [&](const StreamVector& v) {
    return v.layer == layer && v.position == position;
  };
  const auto found = std::find_if(vectors.begin(), vectors.end(), same);
  if (found == vectors.end()) {
    vectors.push_back({layer, position, {values.begin(), values.end()}});
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) found->values[i] += values[i];
}

}  // namespace

StreamVectors WrittenBy(const FrozenPrompt& prompt, const std::vector<ActiveFeature>& features,
                        const GraphNodes& nodes, std::span<const std::int64_t> sources) {
  const std::int64_t C = prompt.config().width;
  std::vector<float> row(static_cast<std::size_t>(C));
  StreamVectors written;
  const auto add_row = [&](std::int64_t layer, std::int64_t position, const Buffer<float>& from) {
    AddTo(written, layer, position, from.span().subspan(position * C, C));
  };
  for (const std::int64_t node : sources) {
    switch (nodes.KindOf(node)) {
      case NodeKind::kFeature: {
        const ActiveFeature& f = features[node];
        for (std::int64_t t = f.layer; t < LastTarget(prompt.transcoder->config, f.layer); ++t) {
          DecoderRow(*prompt.transcoder, f.layer, f.feature, t, row.data());
          for (float& value : row) value *= f.activation;
          AddTo(written, t, f.position, row);
        }
        break;
      }
      case NodeKind::kError: {
        const std::int64_t layer = nodes.LayerOfError(node);
        add_row(layer, nodes.PositionOf(node), prompt.layers[layer].error);
        break;
      }
      case NodeKind::kToken:
        add_row(-1, nodes.PositionOf(node), prompt.tokens);
        break;
      case NodeKind::kPosition:
        add_row(-1, nodes.PositionOf(node), prompt.positions);
        break;
      case NodeKind::kBias:
      case NodeKind::kLogit:
        Fail("biases and logits write nothing that heads could carry");
    }
  }
  return written;
}

StreamVectors ReadBy(const FrozenPrompt& prompt, const std::vector<ActiveFeature>& features,
                     std::span<const std::int64_t> targets) {
  std::vector<float> row(static_cast<std::size_t>(prompt.config().width));
  StreamVectors read;
  double bias = 0.0;
  for (const std::int64_t node : targets) {
    const ActiveFeature& f = features[node];
    EncoderGradient(prompt, f.layer, f.position, f.feature, row.data(), bias);
    AddTo(read, f.layer, f.position, row);
  }
  return read;
}

StreamVectors ReadBy(const FrozenPrompt& prompt, const LogitTarget& target) {
  StreamVector read{.layer = prompt.config().layers, .position = target.position, .values = {}};
  read.values.resize(static_cast<std::size_t>(prompt.config().width));
  double bias = 0.0;
  FinalGradient(prompt, target.position, DirectionOf(prompt, target), read.values.data(), bias);
  return {read};
}

void AddVectors(const StreamVectors& vectors, std::int64_t layer, std::int64_t width, float* rows) {
  for (const StreamVector& v : vectors) {
    if (v.layer != layer) continue;
    for (std::int64_t i = 0; i < width; ++i) rows[v.position * width + i] += v.values[i];
  }
}

}  // namespace clearhead
