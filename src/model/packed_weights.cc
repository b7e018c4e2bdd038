// SPDX-License-Identifier: MIT
#include "model/packed_weights.h"

#include <memory>
#include <utility>

#include "model/head_weights.h"

namespace clearhead {
namespace {

void PackLayer(const Linear& layer, PackedFor purpose, PackedWays ways, PackedLayer* packed) {
  if (layer.weight.empty()) return;
  const bool in_out = layer.order == Order::kInOut;
  const auto operand = [&](bool plain) {
    return WeightOperand(layer.weight, layer.stride, plain ? Op::kNone : Op::kTranspose);
  };
  packed->forward.Pack(operand(in_out), layer.in, layer.out, purpose);
  if (ways == PackedWays::kForward) return;
  packed->transposed.Pack(operand(!in_out), layer.out, layer.in, purpose);
}

}  // namespace

void PackedWeights::Pack(const Model& model, PackedFor purpose, PackedWays which) {
  ways = which;
  blocks.resize(model.weights.blocks.size());
  for (std::size_t at = 0; at < blocks.size(); ++at) {
    const BlockLayers layers = LayersOf(model, static_cast<std::int64_t>(at));
    const auto pack = [&](const BlockLinear& layer) {
      PackLayer(layer.linear, purpose, which, &blocks[at][layer.weight]);
    };
    for (int i = 0; i < layers.projection_count; ++i) {
      pack(layers.projections[static_cast<std::size_t>(i)].layer);
    }
    for (const BlockLinear* layer :
         {&layers.output, &layers.mlp_gate, &layers.mlp_in, &layers.mlp_out}) {
      pack(*layer);
    }
  }
  PackLayer(OutputLayer(model), purpose, which, &output);
}

void PackedWeights::Use(const PackedLayer& packed, Linear* layer) const {
  layer->packed = &packed.forward;
  layer->packed_transposed = ways == PackedWays::kBoth ? &packed.transposed : nullptr;
}

std::optional<PackedFor> PackedInTraining(const ModelConfig& config, bool bf16) {
  if (bf16) return PackedFor::kBf16;
  if (config.ParameterCount() <= kWidenUpTo) return PackedFor::kF32;
  return std::nullopt;
}

void PackForUse(Model* model, PackedWays ways) {
  if (model->packed != nullptr && (ways == model->packed->ways || ways == PackedWays::kForward)) {
    return;
  }
  auto packed = std::make_shared<PackedWeights>();
  packed->Pack(*model, PackedFor::kF32, ways);
  model->packed = std::move(packed);
}

}  // namespace clearhead
