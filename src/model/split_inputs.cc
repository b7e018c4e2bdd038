// SPDX-License-Identifier: MIT
#include "model/split_inputs.h"

#include <algorithm>

#include "kernels/gemm.h"
#include "model/product_input.h"

namespace clearhead {
namespace {

constexpr Tap kParts[] = {Tap::kQInput, Tap::kKInput, Tap::kVInput};

// out[r, h, :] = rows[r, :] for every head.
void RepeatForHeads(std::int64_t rows, std::int64_t heads, std::int64_t width, const float* from,
                    float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t h = 0; h < heads; ++h) {
      std::copy(from + r * width, from + (r + 1) * width, out + (r * heads + h) * width);
    }
  }
}

}  // namespace

void VisitSplitInputs(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                      const BlockActivations& a) {
  const std::int64_t R = pass.rows(), C = pass.config().width, H = pass.config().heads;
  const std::int64_t D = pass.config().head_size();
  for (int part = 0; part < 3; ++part) {
    const TapId id{kParts[part], layer};
    if (!pass.Wants(id)) continue;
    const Shape shape{pass.batch, pass.length, H, C};
    Buffer<float> own;
    float* input = pass.hooks->Storage(id, shape);
    if (input == nullptr) {
      own = Buffer<float>(shape.size());
      input = own.data();
    }
    RepeatForHeads(R, H, C, a.resid_pre, input);
    pass.Visit(id, {input, shape});
    if (!pass.Changes(id)) continue;

    // The columns of W_attn that make this part of head h.
    Buffer<float> normalized(R * H * C), mean(R * H), scale(R * H);
    LayerNormForward(layers.ln_1, R * H, input, normalized.data(), mean.data(), scale.data());
    const ProductInput x_in(pass, normalized.data(), R * H * C),
        weight(pass, layers.c_attn.weight, 3 * C * C);
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t column = part * C + h * D;
      for (std::int64_t r = 0; r < R; ++r) {
        std::copy(layers.c_attn.bias + column, layers.c_attn.bias + column + D,
                  a.qkv + r * 3 * C + column);
      }
      Gemm({R, D, C}, {x_in.data() + h * C, H * C}, {weight.data() + column, 3 * C}, a.qkv + column,
           3 * C, /*accumulate=*/true);
    }
  }
}

void VisitSplitInputGradients(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                              const BlockActivations& a, const float* d_qkv) {
  const std::int64_t R = pass.rows(), C = pass.config().width, H = pass.config().heads;
  const std::int64_t D = pass.config().head_size();
  for (int part = 0; part < 3; ++part) {
    const TapId id{kParts[part], layer};
    if (!pass.WantsGradient(id)) continue;
    if (pass.Changes(id)) Fail("gradients through a changed {} are not supported", TapName(id));
    Buffer<float> x(R * H * C), d_normalized(R * H * C), d_x(R * H * C), mean(R * H), scale(R * H);
    RepeatForHeads(R, H, C, a.resid_pre, x.data());
    RepeatForHeads(R, H, 1, a.ln_1_mean, mean.data());
    RepeatForHeads(R, H, 1, a.ln_1_scale, scale.data());
    const ProductInput d_in(pass, d_qkv, R * 3 * C), weight(pass, layers.c_attn.weight, 3 * C * C);
    for (std::int64_t h = 0; h < H; ++h) {
      const std::int64_t column = part * C + h * D;
      Gemm({R, C, D}, {d_in.data() + column, 3 * C},
           {weight.data() + column, 3 * C, Op::kTranspose}, d_normalized.data() + h * C, H * C,
           /*accumulate=*/false);
    }
    std::fill(d_x.begin(), d_x.end(), 0.0f);
    LayerNormBackward(layers.ln_1, R * H, x.data(), mean.data(), scale.data(), d_normalized.data(),
                      d_x.data(), nullptr, nullptr);
    pass.VisitGradient(id, {d_x.data(), {pass.batch, pass.length, H, C}});
  }
}

}  // namespace clearhead
