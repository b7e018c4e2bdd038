// SPDX-License-Identifier: MIT
#include "train/lora.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "kernels/gemm.h"
#include "train/trained_part.h"

namespace clearhead {
namespace {

// One layer's part of the trained values.
template <typename T>
struct Factors {
  T *a, *b, *bias;
  Factors(T* at, std::int64_t width, std::int64_t rank)
      : a(at), b(a + width * rank), bias(b + 3 * width * rank) {}
};

}  // namespace

Lora::Lora(const Model& start, std::int64_t rank) : start_(start), rank_(rank) {
  CheckTrainedPart({TrainedPart::Kind::kLora, rank}, start.config);
}

std::int64_t Lora::LayerSize() const {
  const std::int64_t C = start_.config.width;
  return C * rank_ + 3 * C * rank_ + 3 * C;
}

void Lora::Fill(float* trained) const {
  const std::int64_t C = start_.config.width;
  const double scale = 1.0 / std::sqrt(static_cast<double>(rank_));
  RandomStream random(HashCoordinates(0x10a, {static_cast<std::uint64_t>(rank_)}));
  for (std::int64_t layer = 0; layer < start_.config.layers; ++layer) {
    const Factors<float> f(trained + layer * LayerSize(), C, rank_);
    for (float* a = f.a; a < f.b; ++a) *a = static_cast<float>(scale * random.Normal());
    std::fill(f.b, f.bias, 0.0f);
    const float* bias = start_.weights.blocks[static_cast<std::size_t>(layer)].c_attn_bias;
    std::copy(bias, bias + 3 * C, f.bias);
  }
}

void Lora::Project(const ModelValues& gradients, const float* trained, float* d_trained) const {
  const std::int64_t C = start_.config.width, R = rank_;
  for (std::int64_t layer = 0; layer < start_.config.layers; ++layer) {
    const Factors<const float> f(trained + layer * LayerSize(), C, R);
    const Factors<float> d(d_trained + layer * LayerSize(), C, R);
    const BlockTensors<float>& block = gradients.blocks[static_cast<std::size_t>(layer)];
    const float* dw = block.c_attn_weight;
    Gemm({C, R, 3 * C}, {dw, 3 * C}, {f.b, 3 * C, Op::kTranspose}, d.a, R, /*accumulate=*/false);
    Gemm({R, 3 * C, C}, {f.a, R, Op::kTranspose}, {dw, 3 * C}, d.b, 3 * C, /*accumulate=*/false);
    std::copy(block.c_attn_bias, block.c_attn_bias + 3 * C, d.bias);
  }
}

void Lora::Merge(const float* trained, ModelValues& weights) const {
  const std::int64_t C = start_.config.width, R = rank_;
  for (std::int64_t layer = 0; layer < start_.config.layers; ++layer) {
    const Factors<const float> f(trained + layer * LayerSize(), C, R);
    const float* w0 = start_.weights.blocks[static_cast<std::size_t>(layer)].c_attn_weight;
    BlockTensors<float>& block = weights.blocks[static_cast<std::size_t>(layer)];
    std::copy(w0, w0 + 3 * C * C, block.c_attn_weight);
    Gemm({C, 3 * C, R}, {f.a, R}, {f.b, 3 * C}, block.c_attn_weight, 3 * C, /*accumulate=*/true);
    std::copy(f.bias, f.bias + 3 * C, block.c_attn_bias);
  }
}

}  // namespace clearhead
