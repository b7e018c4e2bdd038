// SPDX-License-Identifier: MIT
#include "model/activations.h"

#include <algorithm>
#include <functional>

#include "core/checked.h"

namespace clearhead {
namespace {

// Hands out consecutive pieces of the arena; with no arena it only measures. One function walks all
// buffers (Layout below), so plan and binding cannot differ.
class Arena {
 public:
  explicit Arena(float* base) : base_(base) {}

  void Take(const std::string& name, std::int64_t count, float** slot) {
    constexpr std::int64_t kLine = 16;  // floats per cache line
    *slot = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count + kLine - 1) / kLine * kLine;
    if (!items_.empty() && items_.back().name == name) {
      items_.back().bytes += count * 4;
    } else {
      items_.push_back({name, count * 4});
    }
  }
  std::int64_t used() const { return used_; }
  const std::vector<MemoryItem>& items() const { return items_; }

 private:
  float* base_;
  std::int64_t used_ = 0;
  std::vector<MemoryItem> items_;
};

// Rows of a pass whose buffers all fit into 64 bits, counted in bytes: each layer has fewer than 32
// buffers, none wider than the widest here.
std::int64_t CountableRows(const ModelConfig& config, std::int64_t batch, std::int64_t length,
                           std::int64_t logit_rows) {
  const std::int64_t widest = std::max({2 * config.qkv_width(), config.width, config.inner});
  CheckedProduct("batch x context x width x layers (in bytes)",
                 {batch, length, widest, config.layers + 1, 32 * std::int64_t{sizeof(float)}});
  CheckedProduct("rows of logits x vocabulary (in bytes)",
                 {logit_rows, config.vocabulary, std::int64_t{sizeof(float)}});
  return batch * length;
}

void TakeBlock(Arena& arena, const ModelConfig& config, std::int64_t rows, bool in_place,
               BlockActivations* block) {
  const std::int64_t C = config.width, F = config.inner, P = config.qkv_width();
  const bool before = config.norm_place == NormPlace::kBefore;
  if (before) {
    arena.Take("norms", rows * C, &block->ln_1);
    arena.Take("norms", rows * C, &block->ln_2);
  } else {
    arena.Take("norms", rows * C, &block->attention_raw);
    arena.Take("norms", rows * C, &block->mlp_raw);
  }
  arena.Take("norms", rows, &block->ln_1_mean);
  arena.Take("norms", rows, &block->ln_1_scale);
  arena.Take("norms", rows, &block->ln_2_mean);
  arena.Take("norms", rows, &block->ln_2_scale);
  arena.Take("attention", rows * P, &block->qkv);
  block->qkv_raw = block->qkv;
  if (config.changes_projections()) {
    if (!in_place) arena.Take("attention", rows * P, &block->qkv_raw);
    const std::int64_t vectors = rows * (config.heads + config.kv_heads());
    arena.Take("norms", vectors, &block->qk_mean);
    arena.Take("norms", vectors, &block->qk_scale);
  }
  arena.Take("attention", rows * config.heads, &block->log_sum_exp);
  arena.Take("attention", rows * config.heads_width(), &block->z);
  arena.Take("mlp", rows * F, &block->mlp_pre);
  if (config.mlp == MlpKind::kGated) arena.Take("mlp", rows * F, &block->mlp_linear);
  if (in_place) {
    block->mlp_post = block->mlp_pre;
  } else {
    arena.Take("mlp", rows * F, &block->mlp_post);
  }
}

void Layout(Arena& arena, const ModelConfig& config, Activations& s) {
  const std::int64_t C = config.width, F = config.inner, P = config.qkv_width();
  const std::int64_t rows = s.batch * s.length;
  const Keep keep = s.keep;
  s.blocks.resize(static_cast<std::size_t>(config.layers));

  // The residual stream.
  if (keep == Keep::kNothing) {
    arena.Take("residual stream", rows * C, &s.resid_final);
    for (BlockActivations& block : s.blocks) {
      block.resid_pre = block.resid_mid = block.resid_post = s.resid_final;
    }
  } else {
    for (BlockActivations& block : s.blocks) {
      arena.Take("residual stream", rows * C, &block.resid_pre);
      if (keep == Keep::kAll) arena.Take("residual stream", rows * C, &block.resid_mid);
    }
    float* shared_mid = nullptr;
    if (keep == Keep::kInputs) arena.Take("residual stream", rows * C, &shared_mid);
    arena.Take("residual stream", rows * C, &s.resid_final);
    for (std::size_t l = 0; l < s.blocks.size(); ++l) {
      const bool last = l + 1 == s.blocks.size();
      if (keep == Keep::kInputs) s.blocks[l].resid_mid = shared_mid;
      s.blocks[l].resid_post = last ? s.resid_final : s.blocks[l + 1].resid_pre;
    }
  }

  // The blocks' own buffers: one set each if kept, else one set for all.
  for (std::size_t l = 0; l < s.blocks.size(); ++l) {
    BlockActivations& block = s.blocks[l];
    if (keep == Keep::kAll || l == 0) {
      TakeBlock(arena, config, rows, keep == Keep::kNothing, &block);
    } else {
      const BlockActivations own = block;
      block = s.blocks[0];
      block.resid_pre = own.resid_pre;
      block.resid_mid = own.resid_mid;
      block.resid_post = own.resid_post;
    }
  }

  arena.Take("output", rows * C, &s.branch);
  arena.Take("output", rows * C, &s.ln_f);
  arena.Take("output", rows, &s.ln_f_mean);
  arena.Take("output", rows, &s.ln_f_scale);
  arena.Take("output", rows, &s.losses);
  arena.Take("logits", s.logit_rows * config.vocabulary, &s.logits);
  if (keep != Keep::kNothing) {
    arena.Take("gradients of activations", rows * C, &s.d_resid);
    arena.Take("gradients of activations", rows * C, &s.d_ln);
    arena.Take("gradients of activations", rows * config.heads_width(), &s.d_z);
    arena.Take("gradients of activations", rows * P, &s.d_qkv);
    s.d_raw = s.d_qkv;
    if (config.query_key_norm != QueryKeyNorm::kNone) {
      arena.Take("gradients of activations", rows * P, &s.d_raw);
    }
    if (config.kv_heads() < config.heads) {
      arena.Take("gradients of activations", rows * 2 * config.heads_width(), &s.d_shared);
    }
    arena.Take("gradients of activations", rows * F, &s.d_mlp);
    if (config.mlp == MlpKind::kGated) {
      arena.Take("gradients of activations", rows * F, &s.d_linear);
    }
  }
  if (config.position == PositionKind::kRotary) {
    arena.Take("positions", s.length * config.head_size() / 2, &s.rotary_cos);
    arena.Take("positions", s.length * config.head_size() / 2, &s.rotary_sin);
  }
}

}  // namespace

Activations::Activations(const ModelConfig& config, std::int64_t batch_size,
                         std::int64_t sequence_length, Keep what, std::int64_t rows_of_logits)
    : Activations(batch_size, sequence_length, what, rows_of_logits) {
  CountableRows(config, batch, length, logit_rows);
  Arena measure(nullptr);
  Layout(measure, config, *this);
  arena_ = Buffer<float>(measure.used());
  Arena bind(arena_.data());
  Layout(bind, config, *this);
  extras.resize(blocks.size());
  if (config.attention == AttentionKind::kGated) {
    open_edges = Buffer<std::int64_t>(config.layers * batch * config.heads);
    gate_probability_sum = Buffer<double>(config.layers * batch * config.heads);
    if (keep != Keep::kNothing) {
      gate_penalty = Buffer<float>(config.heads);
      d_gate_bias = Buffer<double>(batch * config.heads);
    }
  }
}

std::vector<MemoryItem> Activations::Plan(const ModelConfig& config, std::int64_t batch,
                                          std::int64_t length, Keep keep, std::int64_t logit_rows) {
  Activations unbound(batch, length, keep, logit_rows);
  Arena measure(nullptr);
  CountableRows(config, batch, length, logit_rows);
  Layout(measure, config, unbound);
  std::vector<MemoryItem> items;  // one per name, in order of first use
  for (const MemoryItem& item : measure.items()) {
    bool merged = false;
    for (MemoryItem& known : items) {
      if (known.name == item.name) {
        known.bytes += item.bytes;
        merged = true;
      }
    }
    if (!merged) items.push_back(item);
  }
  return items;
}

}  // namespace clearhead
