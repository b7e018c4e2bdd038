// SPDX-License-Identifier: MIT
// Low-rank training of attention's input matrix (LoRA: Hu et al., arXiv 2106.09685).
//   W = W0 + A B      W, W0 [C,3C] c_attn of one layer; A [C,R], B [R,3C] are trained, with the
//   bias dA = dW B^T       dB = A^T dW
// B starts at 0, so the model starts as it was; A at normal(0, 1/R), so that a step moves the
// entries of W about as far as full training would at the same rate. The bias is trained as it is:
// gates are closed by shifting scores, for which the key bias is the plain way.
#pragma once

#include <cstdint>

#include "core/buffer.h"
#include "model/model.h"

namespace clearhead {

class Lora {
 public:
  // Keeps `start`'s storage alive.
  Lora(const Model& start, std::int64_t rank);

  // All trained values, layer after layer: A, B, bias.
  std::int64_t size() const { return start_.config.layers * LayerSize(); }
  void Fill(float* trained) const;

  // The trained values' gradients from those of the whole model.
  void Project(const ModelValues& gradients, const float* trained, float* d_trained) const;

  // The model's weights with the product added in.
  void Merge(const float* trained, ModelValues& weights) const;

 private:
  std::int64_t LayerSize() const;
  Model start_;
  std::int64_t rank_;
};

}  // namespace clearhead
