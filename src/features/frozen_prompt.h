// SPDX-License-Identifier: MIT
// One prompt run once, with everything kept that its linear model holds fixed: attention weights
// (times their gates), the divisors of the norms, which features fire and how strongly. What is
// left of the network (values, outputs, centring, gains, skips) is linear, and frozen_linear.h runs
// it. What features do not explain of an MLP's output is an error of its own, so that nothing is
// lost. Letters as in docs/architecture.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "features/transcoder.h"
#include "kernels/sparse_rows.h"
#include "model/model.h"

namespace clearhead {

struct FrozenLayer {
  Buffer<float> weights;               // [H,T,T] as they meet the values
  Buffer<float> ln1_scale, ln2_scale;  // [T], of the norms in front of the halves or behind them
  Buffer<float> resid_pre;             // [T,C]
  Buffer<float> input;                 // [T,C] what the encoder reads
  Buffer<float> mlp_out;               // [T,C]
  Buffer<float> error;                 // [T,C] mlp_out - reconstruction
  SparseRows active;                   // [T] rows of features
};

// The model and the transcoder must outlive it.
struct FrozenPrompt {
  const Model* model = nullptr;
  const Transcoder* transcoder = nullptr;  // null: no features, every MLP output is an error
  std::vector<std::int32_t> ids;           // [T]
  std::vector<FrozenLayer> layers;
  Buffer<float> tokens, positions;  // [T,C] embeddings; no positions where they are not learned
  Buffer<float> final_scale;        // [T]
  Buffer<float> normalized;         // [T,C] what the output matrix reads

  std::int64_t length() const { return static_cast<std::int64_t>(ids.size()); }
  const ModelConfig& config() const { return model->config; }
};

struct FrozenOptions {
  // Features fire from here on; before it MLP outputs are errors. Without a value: what the
  // transcoder says.
  std::optional<std::int64_t> first_position = {};
  // The caller has asked CheckFits: hashing a model's weights for every prompt would cost more than
  // running it.
  bool checked = false;
};

// Refuses what is not linear when frozen: values that the model clamps (clip_qkv). Queries and keys
// may be clamped, their products are frozen.
FrozenPrompt FreezePrompt(const Model& model, const Transcoder* transcoder,
                          std::span<const std::int32_t> ids, const FrozenOptions& options = {});

// The logits [V] after a position.
std::vector<float> LogitsAt(const FrozenPrompt& run, std::int64_t position);

}  // namespace clearhead
