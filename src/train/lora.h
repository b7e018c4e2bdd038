// SPDX-License-Identifier: MIT
// Low-rank training of attention's input matrices (LoRA: Hu et al., arXiv 2106.09685). For each of
// a block's projections to queries, keys and values (one matrix or three):
//   W = W0 + A B      W, W0 [in,out]; A [in,R], B [R,out] are trained, with the bias
//   dA = dW B^T       dB = A^T dW
// B starts at 0, so the model starts as it was; A at normal(0, 1/R), so that a step moves the
// entries of W about as far as full training would at the same rate. The bias is trained as it is:
// gates are closed by shifting scores, for which the key bias is the plain way.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "model/model.h"

namespace clearhead {

class Lora {
 public:
  // Keeps `start`'s storage alive.
  Lora(const Model& start, std::int64_t rank);

  // All trained values, matrix after matrix: A, B, bias.
  std::int64_t size() const { return size_; }
  void Fill(float* trained) const;

  // The trained values' gradients from those of the matrices.
  void Project(const ModelValues& gradients, const float* trained, float* d_trained) const;

  // The matrices with the product added in.
  void Merge(const float* trained, ModelValues& weights) const;

 private:
  // One projection, and where its trained values begin.
  struct Matrix {
    std::int64_t layer, in, out, offset;
    Role weight, bias;
    bool has_bias;
  };
  template <typename T>
  struct Factors {
    T *a, *b, *bias;
  };
  template <typename T>
  Factors<T> FactorsOf(const Matrix& matrix, T* trained) const {
    T* a = trained + matrix.offset;
    T* b = a + matrix.in * rank_;
    return {a, b, b + rank_ * matrix.out};
  }

  Model start_;
  std::int64_t rank_;
  std::vector<Matrix> matrices_;
  std::int64_t size_ = 0;
};

}  // namespace clearhead
