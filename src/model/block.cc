// SPDX-License-Identifier: MIT
#include "model/block.h"

#include <algorithm>

#include "core/threads.h"
#include "model/attention_layer.h"
#include "model/mlp.h"
#include "model/projections.h"

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

// The norm of a half, with its taps; in front of it (`to` is the half's input) or behind it (`to`
// is what joins the stream).
void NormWithTaps(const Pass& pass, const Norm& norm, Tap scale_tap, Tap normalized_tap,
                  std::int64_t layer, const float* from, float* to, float* mean, float* scale) {
  NormForward(norm, pass.rows(), from, to, mean, scale);
  pass.Visit({scale_tap, layer}, pass.Rows(scale, 1));
  pass.Visit({normalized_tap, layer}, pass.Rows(to, pass.config().width));
}

bool NormsBefore(const Pass& pass) { return pass.config().norm_place == NormPlace::kBefore; }

// The heads' outputs [R, HD] as [B,T,H,D].
TensorView<float> Heads(const Pass& pass, float* z) {
  return {z, {pass.batch, pass.length, pass.config().heads, pass.config().head_size()}};
}

// branch = z W_O + bias; by way of each head's own result where a hook wants it.
void ProjectHeads(const Pass& pass, std::int64_t layer, const Linear& projection, const float* z,
                  float* branch) {
  const TapId id{Tap::kResult, layer};
  if (!pass.Wants(id)) return LinearForward(projection, pass.rows(), z, branch);
  const std::int64_t R = pass.rows(), C = pass.config().width, H = pass.config().heads;
  const std::int64_t D = pass.config().head_size(), Z = pass.config().heads_width();
  const Shape shape{pass.batch, pass.length, H, C};
  Buffer<float> own;
  float* result = pass.hooks->Storage(id, shape);
  if (result == nullptr) {
    own = Buffer<float>(shape.size());
    result = own.data();
  }
  for (std::int64_t h = 0; h < H; ++h) {
    LinearForward(InputsOf(projection, h * D, D), R, {z + h * D, Z}, {result + h * C, H * C});
  }
  pass.Visit(id, {result, shape});
  ParallelRanges(R, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) {
      float* out = branch + r * C;
      if (projection.bias == nullptr) {
        std::fill(out, out + C, 0.0f);
      } else {
        std::copy(projection.bias, projection.bias + C, out);
      }
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
  const std::int64_t D = pass.config().head_size(), Z = pass.config().heads_width();
  Buffer<float> d_result(R * H * C);
  for (std::int64_t r = 0; r < R * H; ++r) {
    std::copy(d_branch + r / H * C, d_branch + (r / H + 1) * C, d_result.data() + r * C);
  }
  pass.VisitGradient(id, {d_result.data(), {pass.batch, pass.length, H, C}});
  for (std::int64_t h = 0; h < H; ++h) {
    LinearBackwardInput(InputsOf(projection, h * D, D), R, {d_result.data() + h * C, H * C},
                        {d_z + h * D, Z});
  }
  if (!pass.Changes(id)) return false;
  for (std::int64_t h = 0; d_weight != nullptr && h < H; ++h) {
    const std::int64_t begin = projection.order == Order::kInOut ? h * D * C : h * D;
    LinearBackwardWeight(InputsOf(projection, h * D, D), R, {z + h * D, Z},
                         {d_result.data() + h * C, H * C}, nullptr, d_weight + begin, nullptr);
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

  pass.Visit({Tap::kResidPre, layer}, pass.Rows(a.resid_pre, C));
  const float* in = a.resid_pre;
  if (NormsBefore(pass)) {
    NormWithTaps(pass, layers.attention_norm, Tap::kLn1Scale, Tap::kLn1Normalized, layer,
                 a.resid_pre, a.ln_1, a.ln_1_mean, a.ln_1_scale);
    in = a.ln_1;
  }
  QueryKeyValueForward(pass, layer, layers, in, activations);
  AttentionLayerForward(pass, layer, activations);
  if (activations.keep != Keep::kNothing && pass.Changes({Tap::kZ, layer})) {
    const std::int64_t count = R * pass.config().heads_width();
    extras.z = Buffer<float>(count);
    std::copy(a.z, a.z + count, extras.z.data());
  } else {
    extras.z = {};  // of an earlier pass with other hooks
  }
  pass.Visit({Tap::kZ, layer}, Heads(pass, a.z));
  HeadsToStream(pass, layer, activations);
}

void HeadsToStream(const Pass& pass, std::int64_t layer, Activations& activations) {
  const std::int64_t C = pass.config().width;
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  float* branch = activations.branch;
  if (NormsBefore(pass)) {
    ProjectHeads(pass, layer, layers.output.linear, a.z, branch);
  } else {
    ProjectHeads(pass, layer, layers.output.linear, a.z, a.attention_raw);
    NormWithTaps(pass, layers.attention_norm, Tap::kLn1Scale, Tap::kLn1Normalized, layer,
                 a.attention_raw, branch, a.ln_1_mean, a.ln_1_scale);
  }
  pass.Visit({Tap::kAttnOut, layer}, pass.Rows(branch, C));
  Add(pass.rows() * C, a.resid_pre, branch, a.resid_mid);
}

void MlpHalfForward(const Pass& pass, std::int64_t layer, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  BlockExtras& extras = activations.extras[static_cast<std::size_t>(layer)];
  float* branch = activations.branch;

  pass.Visit({Tap::kResidMid, layer}, pass.Rows(a.resid_mid, C));
  const float* in = MlpInput(pass, layer, a.resid_mid, extras);
  if (NormsBefore(pass)) {
    NormWithTaps(pass, layers.mlp_norm, Tap::kLn2Scale, Tap::kLn2Normalized, layer, in, a.ln_2,
                 a.ln_2_mean, a.ln_2_scale);
    MlpForward(pass, layer, layers, a.ln_2, a, branch);
  } else {
    MlpForward(pass, layer, layers, in, a, a.mlp_raw);
    NormWithTaps(pass, layers.mlp_norm, Tap::kLn2Scale, Tap::kLn2Normalized, layer, a.mlp_raw,
                 branch, a.ln_2_mean, a.ln_2_scale);
  }
  pass.Visit({Tap::kMlpOut, layer}, pass.Rows(branch, C));
  Add(R * C, a.resid_mid, branch, a.resid_post);
  pass.Visit({Tap::kResidPost, layer}, pass.Rows(a.resid_post, C));
}

void AppendKeysAndValues(const Pass& pass, std::int64_t layer, Activations& activations) {
  const BlockLayers layers = LayersOf(pass, layer);
  BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  const float* in = a.resid_pre;
  if (NormsBefore(pass)) {
    NormForward(layers.attention_norm, pass.rows(), a.resid_pre, a.ln_1, a.ln_1_mean, a.ln_1_scale);
    in = a.ln_1;
  }
  KeyValueForward(pass, layer, layers, in, activations);
  AppendToCache(pass, layer, activations);
}

void BlockBackward(const Pass& pass, std::int64_t layer, Activations& activations,
                   const RoleTensors<float*>* gradients, PackedBf16* scratch) {
  const std::int64_t R = pass.rows(), C = pass.config().width;
  const BlockLayers layers = LayersOf(pass, layer);
  const BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  const BlockExtras& extras = activations.extras[static_cast<std::size_t>(layer)];
  // Parameter gradients, each beside the layer it belongs to; none when only taps are wanted.
  static const RoleTensors<float*> kNone;
  const RoleTensors<float*>& d = gradients == nullptr ? kNone : *gradients;
  float* d_resid = activations.d_resid;  // of post, then mid, then pre
  float* d_in = activations.d_ln;        // of what a half reads: the norm's output, or the stream
  // A branch's output has the stream's gradient; a hook that changes one must not change the other.
  const auto branch_gradient = [&](TapId id) {
    if (!pass.WantsGradient(id)) return d_resid;
    std::copy(d_resid, d_resid + R * C, activations.branch);
    pass.VisitGradient(id, pass.Rows(activations.branch, C));
    return activations.branch;
  };
  // Behind a half: out = norm(raw). The result replaces d_out in `branch`.
  const auto norm_behind = [&](const Norm& norm, Tap tap, const float* raw, const float* mean,
                               const float* scale, const float* d_out, Role weight, Role bias) {
    float* d_raw = activations.d_ln;
    if (d_out != activations.branch) std::copy(d_out, d_out + R * C, activations.branch);
    pass.VisitGradient({tap, layer}, pass.Rows(activations.branch, C));
    std::fill(d_raw, d_raw + R * C, 0.0f);
    NormBackward(norm, R, raw, mean, scale, activations.branch, d_raw, d[weight], d[bias]);
    std::copy(d_raw, d_raw + R * C, activations.branch);
    return activations.branch;
  };

  // post = mid + mlp_out
  pass.VisitGradient({Tap::kResidPost, layer}, pass.Rows(d_resid, C));
  const float* d_mlp_out = branch_gradient({Tap::kMlpOut, layer});
  const float* mlp_in = extras.mlp_in.size() > 0 ? extras.mlp_in.data() : a.resid_mid;
  const bool wants_mlp_in = pass.WantsGradient({Tap::kMlpIn, layer});
  if (NormsBefore(pass)) {
    // mlp_out = mlp(ln_2)
    MlpBackward(pass, layer, layers, a.ln_2, a, activations, d, scratch, d_mlp_out, d_in);
    pass.VisitGradient({Tap::kLn2Normalized, layer}, pass.Rows(d_in, C));
    // ln_2 = norm(mid), which joins the stream
    float* joined = wants_mlp_in ? activations.branch : d_resid;
    if (wants_mlp_in) std::fill(joined, joined + R * C, 0.0f);
    NormBackward(layers.mlp_norm, R, mlp_in, a.ln_2_mean, a.ln_2_scale, d_in, joined,
                 d[Role::kMlpNormWeight], d[Role::kMlpNormBias]);
    if (wants_mlp_in) {
      pass.VisitGradient({Tap::kMlpIn, layer}, pass.Rows(joined, C));
      Add(R * C, d_resid, joined, d_resid);
    }
  } else {
    // mlp_out = norm(mlp(mid)), whose input joins the stream
    const float* d_raw =
        norm_behind(layers.mlp_norm, Tap::kLn2Normalized, a.mlp_raw, a.ln_2_mean, a.ln_2_scale,
                    d_mlp_out, Role::kMlpNormWeight, Role::kMlpNormBias);
    MlpBackward(pass, layer, layers, mlp_in, a, activations, d, scratch, d_raw, d_in);
    pass.VisitGradient({Tap::kMlpIn, layer}, pass.Rows(d_in, C));
    Add(R * C, d_resid, d_in, d_resid);
  }
  pass.VisitGradient({Tap::kResidMid, layer}, pass.Rows(d_resid, C));

  // mid = pre + attn_out
  const float* d_attn_out = branch_gradient({Tap::kAttnOut, layer});
  if (!NormsBefore(pass)) {
    d_attn_out =
        norm_behind(layers.attention_norm, Tap::kLn1Normalized, a.attention_raw, a.ln_1_mean,
                    a.ln_1_scale, d_attn_out, Role::kAttentionNormWeight, Role::kAttentionNormBias);
  }
  // attn_out = z W_O + bias
  const BlockLinear& output = layers.output;
  const bool by_head = ProjectHeadsBackward(pass, layer, output.linear, a.z, d_attn_out,
                                            activations.d_z, d[output.weight]);
  LinearBackwardWeight(output.linear, R, a.z, d_attn_out, scratch,
                       by_head ? nullptr : d[output.weight], d[output.bias]);
  pass.VisitGradient({Tap::kZ, layer}, Heads(pass, activations.d_z));
  // z = attention(q, k, v)
  AttentionLayerBackward(pass, layer, activations, d[Role::kGateBias]);
  // q, k, v = projections of ln_1, or of the stream
  const float* in = NormsBefore(pass) ? a.ln_1 : a.resid_pre;
  QueryKeyValueBackward(pass, layer, layers, in, activations, d, scratch, d_in);
  if (NormsBefore(pass)) {
    pass.VisitGradient({Tap::kLn1Normalized, layer}, pass.Rows(d_in, C));
    // ln_1 = norm(pre), which joins the stream
    NormBackward(layers.attention_norm, R, a.resid_pre, a.ln_1_mean, a.ln_1_scale, d_in, d_resid,
                 d[Role::kAttentionNormWeight], d[Role::kAttentionNormBias]);
  } else {
    Add(R * C, d_resid, d_in, d_resid);
  }
  pass.VisitGradient({Tap::kResidPre, layer}, pass.Rows(d_resid, C));
}

}  // namespace clearhead
