// SPDX-License-Identifier: MIT
#include "model/packed_weights.h"

#include "model/head_weights.h"

namespace clearhead {
namespace {

void PackBoth(const Linear& layer, PackedMatrix* packed) {
  if (layer.weight.empty()) return;
  const bool in_out = layer.order == Order::kInOut;
  Buffer<float> widened;
  const float* values = nullptr;
  if (layer.weight.is_f32()) {
    values = layer.weight.f32();
  } else {
    widened = Buffer<float>(layer.in * layer.out);
    layer.weight.CopyTo(0, widened.size(), widened.data());
    values = widened.data();
  }
  packed->forward.Pack(values, layer.in, layer.out, layer.stride, /*transposed=*/!in_out);
  packed->transposed.Pack(values, layer.out, layer.in, layer.stride, /*transposed=*/in_out);
}

}  // namespace

void PackedWeights::Pack(const Model& model) {
  blocks.resize(model.weights.blocks.size());
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    const BlockLayers layers = LayersOf(model, static_cast<std::int64_t>(at));
    const auto pack = [&](const BlockLinear& layer) {
      PackBoth(layer.linear, &blocks[at][layer.weight]);
    };
    for (int i = 0; i < layers.projection_count; ++i) {
      pack(layers.projections[static_cast<std::size_t>(i)].layer);
    }
    for (const BlockLinear* layer :
         {&layers.output, &layers.mlp_gate, &layers.mlp_in, &layers.mlp_out}) {
      pack(*layer);
    }
  }
  PackBoth(OutputLayer(model), &output);
}

}  // namespace clearhead
