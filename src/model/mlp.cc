// SPDX-License-Identifier: MIT
#include "model/mlp.h"

#include "kernels/activation.h"

namespace clearhead {

void MlpForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers, const float* in,
                const BlockActivations& a, float* out) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), F = config.inner;
  if (config.mlp == MlpKind::kPlain) {
    LinearForward(layers.mlp_in.linear, R, in, a.mlp_pre);
    pass.Visit({Tap::kMlpPre, layer}, pass.Rows(a.mlp_pre, F));
    ActivationForward(config.activation, R * F, a.mlp_pre, a.mlp_post);
  } else {
    LinearForward(layers.mlp_gate.linear, R, in, a.mlp_pre);
    pass.Visit({Tap::kMlpPre, layer}, pass.Rows(a.mlp_pre, F));
    LinearForward(layers.mlp_in.linear, R, in, a.mlp_linear);
    pass.Visit({Tap::kMlpPreLinear, layer}, pass.Rows(a.mlp_linear, F));
    GatedActivationForward(config.activation, R * F, a.mlp_pre, a.mlp_linear, a.mlp_post);
  }
  pass.Visit({Tap::kMlpPost, layer}, pass.Rows(a.mlp_post, F));
  LinearForward(layers.mlp_out.linear, R, a.mlp_post, out);
}

void MlpBackward(const Pass& pass, std::int64_t layer, const BlockLayers& layers, const float* in,
                 const BlockActivations& a, Activations& activations,
                 const RoleTensors<float*>& gradients, PackedBf16* scratch, const float* d_out,
                 float* d_in) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), F = config.inner;
  float* d_mlp = activations.d_mlp;
  const auto weight_gradient = [&](const BlockLinear& layer_of_block, const float* x,
                                   const float* dy) {
    LinearBackwardWeight(layer_of_block.linear, R, x, dy, scratch, gradients[layer_of_block.weight],
                         gradients[layer_of_block.bias]);
  };
  // out = post W_out + bias
  LinearBackwardInput(layers.mlp_out.linear, R, d_out, d_mlp);
  weight_gradient(layers.mlp_out, a.mlp_post, d_out);
  pass.VisitGradient({Tap::kMlpPost, layer}, pass.Rows(d_mlp, F));
  if (config.mlp == MlpKind::kPlain) {
    // post = f(pre)
    ActivationBackward(config.activation, R * F, a.mlp_pre, d_mlp, d_mlp);
    pass.VisitGradient({Tap::kMlpPre, layer}, pass.Rows(d_mlp, F));
    // pre = in W_in + bias
    LinearBackwardInput(layers.mlp_in.linear, R, d_mlp, d_in);
    weight_gradient(layers.mlp_in, in, d_mlp);
    return;
  }
  // post = f(pre) * linear
  float* d_linear = activations.d_linear;
  GatedActivationBackward(config.activation, R * F, a.mlp_pre, a.mlp_linear, d_mlp, d_mlp,
                          d_linear);
  pass.VisitGradient({Tap::kMlpPreLinear, layer}, pass.Rows(d_linear, F));
  pass.VisitGradient({Tap::kMlpPre, layer}, pass.Rows(d_mlp, F));
  // linear = in W_in + bias, pre = in W_gate + bias
  const std::int64_t C = config.width;
  LinearBackwardInput(layers.mlp_in.linear, R, {d_linear, F}, {d_in, C});
  weight_gradient(layers.mlp_in, in, d_linear);
  LinearBackwardInput(layers.mlp_gate.linear, R, {d_mlp, F}, {d_in, C}, /*accumulate=*/true);
  weight_gradient(layers.mlp_gate, in, d_mlp);
}

}  // namespace clearhead
