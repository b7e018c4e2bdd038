// SPDX-License-Identifier: MIT
// Causal attention of one layer, fused: the score matrix exists only block by block in cache,
// memory is linear in length. attention_stages.h has the same computation with every T×T matrix in
// the open.
//
// Per sequence b and head h, with pos(i) = i + (keys - queries) the place of query i:
//
//     s_ij = scale * q_i . k_j               j <= pos(i)
//     p_ij = exp(s_ij - L_i),                L_i = log sum_{j <= pos(i)} exp(s_ij)
//     z_i  = sum_j p_ij v_j
//
// backward, with r_ij = dz_i . v_j and D_i = dz_i . z_i:
//
//     dv_j  = sum_i p_ij dz_i
//     ds_ij = p_ij (r_ij - D_i)
//     dq_i  = scale * sum_j ds_ij k_j        dk_j = scale * sum_i ds_ij q_i
//
// The plain specification is reference/attention.h. Results do not depend on the number of threads,
// and row i of a long sequence has the same bits as the same row computed alone against cached
// keys. Scratch memory is kept per thread between calls: the second call of a size allocates
// nothing.
#pragma once

#include <cstdint>
#include <type_traits>

namespace clearhead {

struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t queries = 0;  // queries == keys in training; fewer with a key/value cache
  std::int64_t keys = 0;     // query i sees keys j <= i + (keys - queries)
  std::int64_t head_size = 0;
  float scale = 1.0f;  // usually 1/sqrt(head_size)
};

// One vector of `head_size` per (sequence, position, head): element (b, t, h, d) is
// data[b*batch_stride + t*row_stride + h*head_size + d]. The q, k and v parts of a [B*T, 3C] matrix
// are three of these with row_stride 3C and batch_stride T*3C. Keys and values may be shared by
// `share` heads each (grouped-query attention): head h then reads vector h / share.
template <typename T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;
  std::int64_t share = 1;

  // As a pointer to const takes a pointer. NOLINTNEXTLINE(google-explicit-constructor)
  operator HeadRows<const T>() const requires(!std::is_const_v<T>) {
    return {data, row_stride, batch_stride, share};
  }
};

struct AttentionInput {
  HeadRows<const float> q;  // [batch, queries, heads, head_size]
  HeadRows<const float> k;  // [batch, keys, heads, head_size]
  HeadRows<const float> v;
};

// What backward needs of the forward pass.
struct AttentionOutput {
  HeadRows<const float> z;             // [batch, queries, heads, head_size]
  const float* log_sum_exp = nullptr;  // L, [batch, heads, queries]
};

// Overwritten, not added to. One vector per head each, also where heads share keys and values: the
// caller sums over those that do.
struct AttentionGradients {
  HeadRows<float> dq;
  HeadRows<float> dk;
  HeadRows<float> dv;
};

// log_sum_exp may be null when no backward follows.
void AttentionForward(const AttentionShape& shape, const AttentionInput& input, HeadRows<float> z,
                      float* log_sum_exp);

void AttentionBackward(const AttentionShape& shape, const AttentionInput& input,
                       const AttentionOutput& output, HeadRows<const float> dz,
                       const AttentionGradients& gradients);

}  // namespace clearhead
