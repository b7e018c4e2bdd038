// SPDX-License-Identifier: MIT
#include "train/lora.h"

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "kernels/gemm.h"
#include "model/family.h"
#include "model/head_weights.h"
#include "train/trained_part.h"

namespace clearhead {

Lora::Lora(const Model& start, std::int64_t rank) : start_(start), rank_(rank) {
  CheckTrainedPart({TrainedPart::Kind::kLora, rank}, start.config);
  for (std::int64_t layer = 0; layer < start.config.layers; ++layer) {
    const BlockLayers layers = LayersOf(start, layer);
    for (int i = 0; i < layers.projection_count; ++i) {
      const BlockLinear& block = layers.projections[static_cast<std::size_t>(i)].layer;
      const Linear& linear = block.linear;
      const bool has_bias = linear.bias != nullptr;
      matrices_.push_back(
          {layer, linear.in, linear.out, size_, block.weight, block.bias, has_bias});
      size_ += linear.in * rank + rank * linear.out + (has_bias ? linear.out : 0);
    }
  }
}

void Lora::Fill(float* trained) const {
  const double scale = 1.0 / std::sqrt(static_cast<double>(rank_));
  RandomStream random(HashCoordinates(0x10a, {static_cast<std::uint64_t>(rank_)}));
  for (const Matrix& m : matrices_) {
    const Factors<float> f = FactorsOf(m, trained);
    for (float* a = f.a; a < f.b; ++a) *a = static_cast<float>(scale * random.Normal());
    std::fill(f.b, f.bias, 0.0f);
    if (m.has_bias) start_.weights(m.bias, m.layer).CopyTo(0, m.out, f.bias);
  }
}

void Lora::Project(const ModelValues& gradients, const float* trained, float* d_trained) const {
  const std::int64_t R = rank_;
  const bool in_out = FamilyOf(start_.config).order == Order::kInOut;
  for (const Matrix& m : matrices_) {
    const Factors<const float> f = FactorsOf(m, trained);
    const Factors<float> d = FactorsOf(m, d_trained);
    // dW [in,out], or stored the other way round.
    const float* dw = gradients(m.weight, m.layer);
    const GemmOperand whole =
        in_out ? GemmOperand{dw, m.out} : GemmOperand{dw, m.in, Op::kTranspose};
    Gemm({m.in, R, m.out}, whole, {f.b, m.out, Op::kTranspose}, d.a, R, /*accumulate=*/false);
    Gemm({R, m.out, m.in}, {f.a, R, Op::kTranspose}, whole, d.b, m.out, /*accumulate=*/false);
    if (m.has_bias) {
      const float* d_bias = gradients(m.bias, m.layer);
      std::copy(d_bias, d_bias + m.out, d.bias);
    }
  }
}

void Lora::Merge(const float* trained, ModelValues& weights) const {
  const std::int64_t R = rank_;
  const bool in_out = FamilyOf(start_.config).order == Order::kInOut;
  for (const Matrix& m : matrices_) {
    const Factors<const float> f = FactorsOf(m, trained);
    float* w = weights(m.weight, m.layer);
    start_.weights(m.weight, m.layer).CopyTo(0, m.in * m.out, w);
    if (in_out) {
      Gemm({m.in, m.out, R}, {f.a, R}, {f.b, m.out}, w, m.out, /*accumulate=*/true);
    } else {
      Gemm({m.out, m.in, R}, {f.b, m.out, Op::kTranspose}, {f.a, R, Op::kTranspose}, w, m.in,
           /*accumulate=*/true);
    }
    if (m.has_bias) std::copy(f.bias, f.bias + m.out, weights(m.bias, m.layer));
  }
}

}  // namespace clearhead
