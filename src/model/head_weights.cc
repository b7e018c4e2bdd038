// SPDX-License-Identifier: MIT
#include "model/head_weights.h"

#include "model/family.h"

namespace clearhead {

BlockLayers LayersOf(const Model& model, std::int64_t layer) {
  const ModelConfig& config = model.config;
  const RoleTensors<Weight>& w = model.weights.blocks[static_cast<std::size_t>(layer)];
  const Order order = FamilyOf(config).order;
  const std::int64_t C = config.width, F = config.inner, D = config.head_size();
  const std::int64_t Q = config.heads_width(), KV = config.kv_width();
  const auto vector = [&](Role role) -> const float* {
    return w[role].empty() ? nullptr : w[role].f32();
  };
  const auto linear = [&](Role weight, Role bias, std::int64_t in, std::int64_t out) {
    return BlockLinear{MakeLinear(w[weight], vector(bias), in, out, order), weight, bias};
  };
  const auto norm = [&](Role weight, Role bias) {
    return Norm{config.norm, vector(weight), vector(bias), C, config.norm_epsilon};
  };
  BlockLayers layers;
  layers.attention_norm = norm(Role::kAttentionNormWeight, Role::kAttentionNormBias);
  layers.mlp_norm = norm(Role::kMlpNormWeight, Role::kMlpNormBias);
  const bool whole = config.query_key_norm == QueryKeyNorm::kWhole;
  layers.query_norm = {NormKind::kRms, vector(Role::kQueryNorm), nullptr, whole ? Q : D,
                       config.norm_epsilon};
  layers.key_norm = {NormKind::kRms, vector(Role::kKeyNorm), nullptr, whole ? KV : D,
                     config.norm_epsilon};
  if (!w[Role::kQkvWeight].empty()) {
    layers.projections[0] = {linear(Role::kQkvWeight, Role::kQkvBias, C, Q + 2 * KV), 0};
    layers.projection_count = 1;
  } else {
    layers.projections = {{{linear(Role::kQueryWeight, Role::kQueryBias, C, Q), 0},
                           {linear(Role::kKeyWeight, Role::kKeyBias, C, KV), Q},
                           {linear(Role::kValueWeight, Role::kValueBias, C, KV), Q + KV}}};
    layers.projection_count = 3;
  }
  layers.output = linear(Role::kProjectionWeight, Role::kProjectionBias, Q, C);
  layers.mlp_gate = linear(Role::kMlpGateWeight, Role::kMlpGateBias, C, F);
  layers.mlp_in = linear(Role::kMlpInWeight, Role::kMlpInBias, C, F);
  layers.mlp_out = linear(Role::kMlpOutWeight, Role::kMlpOutBias, F, C);
  return layers;
}

std::int64_t ColumnOf(const ModelConfig& config, int part) {
  return part == 0 ? 0 : config.heads_width() + (part - 1) * config.kv_width();
}

Linear PartOf(const BlockLayers& layers, const ModelConfig& config, int part) {
  const std::int64_t column = ColumnOf(config, part);
  const std::int64_t width = part == 0 ? config.heads_width() : config.kv_width();
  const auto& whole =
      layers.projections[layers.projection_count == 1 ? 0 : static_cast<std::size_t>(part)];
  return OutputsOf(whole.layer.linear, column - whole.column, width);
}

HeadWeights HeadWeightsOf(const Model& model, std::int64_t layer, std::int64_t head) {
  const ModelConfig& config = model.config;
  const BlockLayers layers = LayersOf(model, layer);
  const std::int64_t D = config.head_size();
  const std::int64_t shared = head / (config.heads / config.kv_heads());
  return {.query = OutputsOf(PartOf(layers, config, 0), head * D, D),
          .key = OutputsOf(PartOf(layers, config, 1), shared * D, D),
          .value = OutputsOf(PartOf(layers, config, 2), shared * D, D),
          .output = InputsOf(layers.output.linear, head * D, D)};
}

Linear OutputLayer(const Model& model) {
  return MakeLinear(OutputMatrix(model.config, model.weights), nullptr, model.config.width,
                    model.config.vocabulary, Order::kOutIn);
}

std::vector<float> OutputRow(const Model& model, std::int32_t token) {
  const std::int64_t C = model.config.width;
  std::vector<float> row(static_cast<std::size_t>(C));
  OutputMatrix(model.config, model.weights).CopyTo(token * C, C, row.data());
  return row;
}

HeadNumbers GateBiasOf(const Model& model, std::int64_t layer) {
  const ModelConfig& config = model.config;
  if (!config.gate_bias_by_head) return config.gate_bias;
  return {config.gate_bias, model.weights(Role::kGateBias, layer).f32()};
}

Norm FinalNormOf(const Model& model) {
  const ModelConfig& config = model.config;
  const auto vector = [&](Role role) -> const float* {
    const Weight& weight = model.weights(role);
    return weight.empty() ? nullptr : weight.f32();
  };
  return {config.norm, vector(Role::kFinalNormWeight), vector(Role::kFinalNormBias), config.width,
          config.norm_epsilon};
}

}  // namespace clearhead
