// SPDX-License-Identifier: MIT
// Activations: all buffers of a pass in one arena, planned before the pass. Letters: R = B*T rows,
// C width, F inner, H heads, K key/value heads, D head size, P = (H + 2K) D, V vocabulary, L
// layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "model/config.h"

namespace clearhead {

// What must survive the forward pass for backward.
enum class Keep {
  kNothing,  // inference: the blocks share one set of buffers, the residual stream is updated in
             // place
  kInputs,   // the input of every block; backward runs each block forward again (less memory, 1/3
             // more work)
  kAll,      // everything backward reads
};

// Buffers of one block. With Keep::kNothing resid_pre, resid_mid and resid_post are one buffer, and
// so are qkv_raw and qkv, mlp_pre and mlp_post. What a model does not have stays null.
struct BlockActivations {
  float* resid_pre = nullptr;      // [R,C]
  float* ln_1 = nullptr;           // [R,C] normalised input of attention (norms before)
  float* ln_1_mean = nullptr;      // [R]
  float* ln_1_scale = nullptr;     // [R]
  float* qkv_raw = nullptr;        // [R,P] as projected, where norms or clamps follow; else qkv
  float* qk_mean = nullptr;        // [R(H+K)] of the query and key norms
  float* qk_scale = nullptr;       // [R(H+K)]
  float* qkv = nullptr;            // [R,P] query | key | value as attention reads them
  float* log_sum_exp = nullptr;    // [B,H,T]
  float* z = nullptr;              // [R,HD] heads' outputs before the projection
  float* attention_raw = nullptr;  // [R,C] attention's output before its norm (norms after)
  float* resid_mid = nullptr;      // [R,C]
  float* ln_2 = nullptr;           // [R,C]
  float* ln_2_mean = nullptr;      // [R]
  float* ln_2_scale = nullptr;     // [R]
  float* mlp_pre = nullptr;        // [R,F]
  float* mlp_linear = nullptr;     // [R,F] what the activation is multiplied with (gated MLPs)
  float* mlp_post = nullptr;       // [R,F]
  float* mlp_raw = nullptr;        // [R,C] the MLP's output before its norm (norms after)
  float* resid_post = nullptr;     // [R,C]
};

// Values of a block that exist only because a hook asked for them, kept for backward.
struct BlockExtras {
  Buffer<float> scores, softmax, mask, weights;  // [B,H,T,T]
  const float* scores_used = nullptr;  // in the buffers above, or where the hook stored them
  const float* softmax_used = nullptr;
  const float* mask_used = nullptr;
  const float* weights_used = nullptr;
  Buffer<float> z;       // [R,HD] as attention gave it, when a hook changed it
  Buffer<float> mlp_in;  // [R,C] as the MLP saw it, when a hook changed it
};

struct MemoryItem {
  std::string name;
  std::int64_t bytes;
};

class Activations {
 public:
  // `logit_rows`: rows of logits that exist at a time; 0 if the caller gives the logits' place.
  Activations(const ModelConfig& config, std::int64_t batch, std::int64_t length, Keep keep,
              std::int64_t logit_rows);
  Activations(Activations&&) = default;

  // What the constructor would allocate, for printing.
  static std::vector<MemoryItem> Plan(const ModelConfig& config, std::int64_t batch,
                                      std::int64_t length, Keep keep, std::int64_t logit_rows);

  std::int64_t batch = 0, length = 0, logit_rows = 0;
  Keep keep = Keep::kNothing;
  std::vector<BlockActivations> blocks;  // L of them; the same buffers where nothing is kept
  std::vector<BlockExtras> extras;       // L
  float* branch = nullptr;       // [R,C] output of attention or MLP before it joins the stream
  float* resid_final = nullptr;  // [R,C] output of the last block
  float* ln_f = nullptr;         // [R,C]
  float* ln_f_mean = nullptr;    // [R]
  float* ln_f_scale = nullptr;   // [R]
  float* logits = nullptr;       // [logit_rows, V]
  float* losses = nullptr;       // [R]
  // Backward only (keep != kNothing):
  float* d_resid = nullptr;   // [R,C] gradient of the residual stream, carried from block to block
  float* d_ln = nullptr;      // [R,C]
  float* d_z = nullptr;       // [R,HD]
  float* d_qkv = nullptr;     // [R,P]
  float* d_raw = nullptr;     // [R,P] of qkv_raw, where it is not qkv
  float* d_shared = nullptr;  // [R,2HD] of keys and values by head, where heads share them
  float* d_mlp = nullptr;     // [R,F]
  float* d_linear = nullptr;  // [R,F] of mlp_linear
  // Rotary positions: cos and sin [T, D/2] of positions rotary_first and after; -1: not filled yet.
  float* rotary_cos = nullptr;
  float* rotary_sin = nullptr;
  std::int64_t rotary_first = -1;
  // Gates (gated models): per layer, sequence and head.
  Buffer<std::int64_t> open_edges;      // [L,B,H]
  Buffer<double> gate_probability_sum;  // [L,B,H]
  // Of the layer that backward is in:
  Buffer<float> gate_penalty;  // [H] more penalty on each of a head's gates than the mean has
  Buffer<double> d_gate_bias;  // [B,H]

 private:
  // Sizes only, nothing allocated.
  Activations(std::int64_t batch_size, std::int64_t sequence_length, Keep what,
              std::int64_t rows_of_logits)
      : batch(batch_size), length(sequence_length), logit_rows(rows_of_logits), keep(what) {}

  Buffer<float> arena_;
};

}  // namespace clearhead
