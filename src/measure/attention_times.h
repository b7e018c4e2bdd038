// SPDX-License-Identifier: MIT
// Attention alone, dense and gated, over queries, keys and values as a layer has them.
#pragma once

#include "core/buffer.h"
#include "kernels/attention.h"
#include "kernels/gated_attention.h"
#include "measure/best_seconds.h"

namespace clearhead {

class AttentionWork {
 public:
  AttentionWork(std::int64_t batch, std::int64_t heads, std::int64_t length, std::int64_t size);

  void Dense();
  void DenseWithBackward();
  void Sampled();              // gates as in post-training, with the sums that its penalty needs
  void SampledWithBackward();  // and the gradient of the penalty
  void Hard();                 // gates as in evaluation, closed as post-training leaves them

  double OpenShare() const;  // of the last pass with gates
  // Of a causal pass: two products forward, five backward, over half of the pairs.
  double FlopsWithBackward() const;

 private:
  AttentionInput Input() const;
  AttentionGradients Gradients();
  HeadRows<float> Output();
  HeadRows<const float> OutputGradient() const;

  AttentionShape shape_;
  std::int64_t width_;
  Buffer<float> qkv_, d_z_, z_, d_qkv_, lse_;
  Buffer<std::int64_t> edges_;
  Buffer<double> probability_;
};

// Seconds.
struct AttentionTimes {
  double dense_forward, dense_both;
  double gated_forward, gated_both;
  double hard_forward, hard_open_share;
  double flops_both;  // of the dense one
};
// Batch 4, 12 heads, 1024 tokens, head size 64.
AttentionWork BenchAttention();
AttentionTimes TimeAttention(const Budget& budget);

}  // namespace clearhead
