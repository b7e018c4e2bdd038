// SPDX-License-Identifier: MIT
#include "model/split_inputs.h"

#include <algorithm>

#include "core/error.h"

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
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, D = config.head_size();
  const std::int64_t P = config.qkv_width();
  for (int part = 0; part < 3; ++part) {
    const TapId id{kParts[part], layer};
    if (!pass.Wants(id)) continue;
    const std::int64_t H = part == 0 ? config.heads : config.kv_heads();
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

    // Each head's share of the projection, from its own input.
    Buffer<float> normalized, mean(R * H), scale(R * H);
    const float* in = input;
    if (config.norm_place == NormPlace::kBefore) {
      normalized = Buffer<float>(R * H * C);
      NormForward(layers.attention_norm, R * H, input, normalized.data(), mean.data(),
                  scale.data());
      in = normalized.data();
    }
    const Linear projection = PartOf(layers, config, part);
    for (std::int64_t h = 0; h < H; ++h) {
      LinearForward(OutputsOf(projection, h * D, D), R, {in + h * C, H * C},
                    {a.qkv_raw + ColumnOf(config, part) + h * D, P});
    }
  }
}

void VisitSplitInputGradients(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                              const BlockActivations& a, const float* d_raw) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, D = config.head_size();
  const std::int64_t P = config.qkv_width();
  for (int part = 0; part < 3; ++part) {
    const TapId id{kParts[part], layer};
    if (!pass.WantsGradient(id)) continue;
    if (pass.Changes(id)) Fail("gradients through a changed {} are not supported", TapName(id));
    const std::int64_t H = part == 0 ? config.heads : config.kv_heads();
    Buffer<float> d_in(R * H * C);
    const Linear projection = PartOf(layers, config, part);
    for (std::int64_t h = 0; h < H; ++h) {
      LinearBackwardInput(OutputsOf(projection, h * D, D), R,
                          {d_raw + ColumnOf(config, part) + h * D, P},
                          {d_in.data() + h * C, H * C});
    }
    const Shape shape{pass.batch, pass.length, H, C};
    if (config.norm_place == NormPlace::kAfter) {
      pass.VisitGradient(id, {d_in.data(), shape});
      continue;
    }
    Buffer<float> x(R * H * C), d_x(R * H * C), mean(R * H), scale(R * H);
    RepeatForHeads(R, H, C, a.resid_pre, x.data());
    RepeatForHeads(R, H, 1, a.ln_1_mean, mean.data());
    RepeatForHeads(R, H, 1, a.ln_1_scale, scale.data());
    std::fill(d_x.begin(), d_x.end(), 0.0f);
    NormBackward(layers.attention_norm, R * H, x.data(), mean.data(), scale.data(), d_in.data(),
                 d_x.data(), nullptr, nullptr);
    pass.VisitGradient(id, {d_x.data(), shape});
  }
}

}  // namespace clearhead
