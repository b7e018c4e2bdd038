// SPDX-License-Identifier: MIT
#include "model/block.h"

#include <algorithm>

#include "core/threads.h"
#include "kernels/activation.h"
#include "kernels/gemm.h"
#include "model/attention_layer.h"
#include "model/product_input.h"
#include "model/split_inputs.h"

namespace clearhead {
namespace {

// sum = a + b; sum may be a.
void Add(std::int64_t count, const float* a, const float* b, float* sum) {
  ParallelRanges(
      count,
      [&](int, std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) sum[i] = a[i] + b[i];
      },
      LeastRows(1));
}

void VisitNorm(const Pass& pass, Tap scale_tap, Tap normalized_tap, std::int64_t layer,
               float* scale, float* normalized) {
  pass.Visit({scale_tap, layer}, pass.Rows(scale, 1));
  pass.Visit({normalized_tap, layer}, pass.Rows(normalized, pass.config().width));
}

// The heads' vectors in a [R, row] buffer as [B,T,H,D].
TensorView<float> Heads(const Pass& pass, float* data, std::int64_t row) {
  const std::int64_t D = pass.config().head_size();
  return {data, {pass.batch, pass.length, pass.config().heads, D}, {pass.length * row, row, D, 1}};
}

// branch = z W_O + bias; by way of each head's own result where a hook wants it.
void ProjectHeads(const Pass& pass, std::int64_t layer, const Linear& projection, const float* z,
                  float* branch) {
  const TapId id{Tap::kResult, layer};
  if (!pass.Wants(id)) return LinearForward(projection, pass.rows(), z, branch);
  const std::int64_t R = pass.rows(), C = pass.config().width, H = pass.config().heads;
  const std::int64_t D = pass.config().head_size();
  const Shape shape{pass.batch, pass.length, H, C};
  Buffer<float> own;
  float* result = pass.hooks->Storage(id, shape);
  if (result == nullptr) {
    own = Buffer<float>(shape.size());
    result = own.data();
  }
  const ProductInput z_in(pass, z, R * C), weight(pass, projection.weight, C * C);
  for (std::int64_t h = 0; h < H; ++h) {
    Gemm({R, C, D}, {z_in.data() + h * D, C}, {weight.data() + h * D * C, C}, result + h * C, H * C,
         /*accumulate=*/false);
  }
  pass.Visit(id, {result, shape});
  ParallelRanges(R, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      float* out = branch + r * C;
      std::copy(projection.bias, projection.bias + C, out);
      for (std::int64_t h = 0; h < H; ++h) {
        const float* head = result + (r * H + h) * C;
        for (std::int64_t i = 0; i < C; ++i) out[i] += head[i];
      }
    }
  });
}

// d result of every head is d attn_out itself. Where a hook changed a result, W_O is seen through
// the change: then its gradient is added here, head by head, and true is returned.
bool ProjectHeadsBackward(const Pass& pass, std::int64_t layer, const Linear& projection,
                          const float* z, const float* d_branch, float* d_z, float* d_weight) {
  const TapId id{Tap::kResult, layer};
  if (!pass.WantsGradient(id)) {
    LinearBackwardInput(projection, pass.rows(), d_branch, d_z);
    return false;
  }
  const std::int64_t R = pass.rows(), C = pass.config().width, H = pass.config().heads;
  const std::int64_t D = pass.config().head_size();
  Buffer<float> d_result(R * H * C);
  for (std::int64_t r = 0; r < R * H; ++r) {
    std::copy(d_branch + r / H * C, d_branch + (r / H + 1) * C, d_result.data() + r * C);
  }
  pass.VisitGradient(id, {d_result.data(), {pass.batch, pass.length, H, C}});
  const ProductInput z_in(pass, z, R * C), weight(pass, projection.weight, C * C),
      d_in(pass, d_result.data(), R * H * C);
  for (std::int64_t h = 0; h < H; ++h) {
    Gemm({R, D, C}, {d_in.data() + h * C, H * C}, {weight.data() + h * D * C, C, Op::kTranspose},
         d_z + h * D, C, /*accumulate=*/false);
  }
  if (!pass.Changes(id)) return false;
  for (std::int64_t h = 0; d_weight != nullptr && h < H; ++h) {
    Gemm({D, C, R}, {z_in.data() + h * D, C, Op::kTranspose}, {d_in.data() + h * C, H * C},
         d_weight + h * D * C, C, /*accumulate=*/true);
  }
  return true;
}

// What the MLP reads: resid_mid, or a hook's changed copy of it.
const float* MlpInput(const Pass& pass, std::int64_t layer, float* resid_mid, BlockExtras& extras) {
  const TapId id{Tap::kMlpIn, layer};
  const std::int64_t C = pass.config().width;
  if (!pass.Changes(id)) {
    extras.mlp_in = {};  // of an earlier pass with other hooks
    pass.Visit(id, pass.Rows(resid_mid, C));
    return resid_mid;
  }
  extras.mlp_in = Buffer<float>(pass.rows() * C);
  std::copy(resid_mid, resid_mid + pass.rows() * C, extras.mlp_in.data());
  pass.Visit(id, pass.Rows(extras.mlp_in.data(), C));
  return extras.mlp_in.data();
}

}  // namespace

void BlockForward(const Pass& pass, std::int64_t layer, Activations& activations) {
  AttentionHalfForward(pass, layer, activations);
  MlpHalfForward(pass, layer, activations);
}

void AttentionHalfForward(const Pass& pass, std::int64_t layer, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  BlockExtras& extras = activations.extras[static_cast<std::size_t>(layer)];
  float* branch = activations.branch;

  pass.Visit({Tap::kResidPre, layer}, pass.Rows(a.resid_pre, C));
  LayerNormForward(layers.ln_1, R, a.resid_pre, a.ln_1, a.ln_1_mean, a.ln_1_scale);
  VisitNorm(pass, Tap::kLn1Scale, Tap::kLn1Normalized, layer, a.ln_1_scale, a.ln_1);
  LinearForward(layers.c_attn, R, a.ln_1, a.qkv);
  VisitSplitInputs(pass, layer, layers, a);
  pass.Visit({Tap::kQ, layer}, Heads(pass, a.qkv, 3 * C));
  pass.Visit({Tap::kK, layer}, Heads(pass, a.qkv + C, 3 * C));
  pass.Visit({Tap::kV, layer}, Heads(pass, a.qkv + 2 * C, 3 * C));

  AttentionLayerForward(pass, layer, activations);
  if (activations.keep != Keep::kNothing && pass.Changes({Tap::kZ, layer})) {
    extras.z = Buffer<float>(R * C);
    std::copy(a.z, a.z + R * C, extras.z.data());
  } else {
    extras.z = {};  // of an earlier pass with other hooks
  }
  pass.Visit({Tap::kZ, layer}, Heads(pass, a.z, C));
  ProjectHeads(pass, layer, layers.attn_c_proj, a.z, branch);
  pass.Visit({Tap::kAttnOut, layer}, pass.Rows(branch, C));
  Add(R * C, a.resid_pre, branch, a.resid_mid);
}

void MlpHalfForward(const Pass& pass, std::int64_t layer, Activations& activations) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, F = config.inner;
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  BlockExtras& extras = activations.extras[static_cast<std::size_t>(layer)];
  float* branch = activations.branch;

  pass.Visit({Tap::kResidMid, layer}, pass.Rows(a.resid_mid, C));
  const float* mlp_in = MlpInput(pass, layer, a.resid_mid, extras);
  LayerNormForward(layers.ln_2, R, mlp_in, a.ln_2, a.ln_2_mean, a.ln_2_scale);
  VisitNorm(pass, Tap::kLn2Scale, Tap::kLn2Normalized, layer, a.ln_2_scale, a.ln_2);
  LinearForward(layers.c_fc, R, a.ln_2, a.mlp_pre);
  pass.Visit({Tap::kMlpPre, layer}, pass.Rows(a.mlp_pre, F));
  ActivationForward(config.activation, R * F, a.mlp_pre, a.mlp_post);
  pass.Visit({Tap::kMlpPost, layer}, pass.Rows(a.mlp_post, F));
  LinearForward(layers.mlp_c_proj, R, a.mlp_post, branch);
  pass.Visit({Tap::kMlpOut, layer}, pass.Rows(branch, C));
  Add(R * C, a.resid_mid, branch, a.resid_post);
  pass.Visit({Tap::kResidPost, layer}, pass.Rows(a.resid_post, C));
}

void AppendKeysAndValues(const Pass& pass, std::int64_t layer, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  LayerNormForward(layers.ln_1, R, a.resid_pre, a.ln_1, a.ln_1_mean, a.ln_1_scale);
  for (std::int64_t r = 0; r < R; ++r) {
    std::copy(layers.c_attn.bias + C, layers.c_attn.bias + 3 * C, a.qkv + r * 3 * C + C);
  }
  const ProductInput normalized(pass, a.ln_1, R * C), weight(pass, layers.c_attn.weight, 3 * C * C);
  Gemm({R, 2 * C, C}, {normalized.data(), C}, {weight.data() + C, 3 * C}, a.qkv + C, 3 * C,
       /*accumulate=*/true);
  AppendToCache(pass, layer, activations);
}

void BlockBackward(const Pass& pass, std::int64_t layer, Activations& activations,
                   BlockTensors<float>* gradients, PackedBf16* scratch) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, F = config.inner;
  const BlockLayers layers = LayersOf(pass, layer);
  const BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  const BlockExtras& extras = activations.extras[static_cast<std::size_t>(layer)];
  // Parameter gradients, each beside the layer it belongs to; none when only taps are wanted.
  static const BlockTensors<float> kNone;
  const BlockTensors<float>& d = gradients == nullptr ? kNone : *gradients;
  const auto weight_gradient = [&](const Linear& linear, const float* x, const float* dy, float* dw,
                                   float* dbias) {
    if (dw != nullptr) LinearBackwardWeight(linear, R, x, dy, scratch, dw, dbias);
  };
  float* d_resid = activations.d_resid;  // of post, then mid, then pre
  float* d_ln = activations.d_ln;
  float* d_mlp = activations.d_mlp;
  // A branch's output has the stream's gradient; a hook that changes one must not change the other.
  const auto branch_gradient = [&](TapId id) {
    if (!pass.WantsGradient(id)) return d_resid;
    std::copy(d_resid, d_resid + R * C, activations.branch);
    pass.VisitGradient(id, pass.Rows(activations.branch, C));
    return activations.branch;
  };

  // post = mid + mlp_out
  pass.VisitGradient({Tap::kResidPost, layer}, pass.Rows(d_resid, C));
  const float* d_mlp_out = branch_gradient({Tap::kMlpOut, layer});
  // mlp_out = mlp_post W_proj + bias
  LinearBackwardInput(layers.mlp_c_proj, R, d_mlp_out, d_mlp);
  weight_gradient(layers.mlp_c_proj, a.mlp_post, d_mlp_out, d.mlp_c_proj_weight, d.mlp_c_proj_bias);
  pass.VisitGradient({Tap::kMlpPost, layer}, pass.Rows(d_mlp, F));
  // mlp_post = activation(mlp_pre)
  ActivationBackward(config.activation, R * F, a.mlp_pre, d_mlp, d_mlp);
  pass.VisitGradient({Tap::kMlpPre, layer}, pass.Rows(d_mlp, F));
  // mlp_pre = ln_2 W_fc + bias
  LinearBackwardInput(layers.c_fc, R, d_mlp, d_ln);
  weight_gradient(layers.c_fc, a.ln_2, d_mlp, d.c_fc_weight, d.c_fc_bias);
  pass.VisitGradient({Tap::kLn2Normalized, layer}, pass.Rows(d_ln, C));
  // ln_2 = norm(mid), which joins the stream
  if (pass.WantsGradient({Tap::kMlpIn, layer}) || extras.mlp_in.size() > 0) {
    const float* mlp_in = extras.mlp_in.size() > 0 ? extras.mlp_in.data() : a.resid_mid;
    float* d_in = activations.branch;
    std::fill(d_in, d_in + R * C, 0.0f);
    LayerNormBackward(layers.ln_2, R, mlp_in, a.ln_2_mean, a.ln_2_scale, d_ln, d_in, d.ln_2_weight,
                      d.ln_2_bias);
    pass.VisitGradient({Tap::kMlpIn, layer}, pass.Rows(d_in, C));
    Add(R * C, d_resid, d_in, d_resid);
  } else {
    LayerNormBackward(layers.ln_2, R, a.resid_mid, a.ln_2_mean, a.ln_2_scale, d_ln, d_resid,
                      d.ln_2_weight, d.ln_2_bias);
  }
  pass.VisitGradient({Tap::kResidMid, layer}, pass.Rows(d_resid, C));

  // mid = pre + attn_out
  const float* d_attn_out = branch_gradient({Tap::kAttnOut, layer});
  // attn_out = z W_O + bias
  if (!ProjectHeadsBackward(pass, layer, layers.attn_c_proj, a.z, d_attn_out, activations.d_z,
                            d.attn_c_proj_weight)) {
    weight_gradient(layers.attn_c_proj, a.z, d_attn_out, d.attn_c_proj_weight, d.attn_c_proj_bias);
  } else if (d.attn_c_proj_bias != nullptr) {
    for (std::int64_t i = 0; i < R * C; ++i) d.attn_c_proj_bias[i % C] += d_attn_out[i];
  }
  pass.VisitGradient({Tap::kZ, layer}, Heads(pass, activations.d_z, C));
  // z = attention(q, k, v)
  AttentionLayerBackward(pass, layer, activations);
  float* d_qkv = activations.d_qkv;
  pass.VisitGradient({Tap::kQ, layer}, Heads(pass, d_qkv, 3 * C));
  pass.VisitGradient({Tap::kK, layer}, Heads(pass, d_qkv + C, 3 * C));
  pass.VisitGradient({Tap::kV, layer}, Heads(pass, d_qkv + 2 * C, 3 * C));
  VisitSplitInputGradients(pass, layer, layers, a, d_qkv);
  // qkv = ln_1 W_attn + bias
  LinearBackwardInput(layers.c_attn, R, d_qkv, d_ln);
  weight_gradient(layers.c_attn, a.ln_1, d_qkv, d.c_attn_weight, d.c_attn_bias);
  pass.VisitGradient({Tap::kLn1Normalized, layer}, pass.Rows(d_ln, C));
  // ln_1 = norm(pre), which joins the stream
  LayerNormBackward(layers.ln_1, R, a.resid_pre, a.ln_1_mean, a.ln_1_scale, d_ln, d_resid,
                    d.ln_1_weight, d.ln_1_bias);
  pass.VisitGradient({Tap::kResidPre, layer}, pass.Rows(d_resid, C));
}

}  // namespace clearhead
