// SPDX-License-Identifier: MIT
// Where attention comes from: a model that is run, or a file that somebody else's run wrote. Both
// look the same to the statistics and figures: sequences of tokens, visited layer by layer, so that
// only one layer's maps exist at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "heads/head_id.h"
#include "model/pass.h"

namespace clearhead {

struct AttentionSequence {
  std::int64_t length = 0;        // T, at least 1
  std::vector<std::int32_t> ids;  // [T]; empty if unknown. Equal numbers are equal tokens.
};

// weights: [H,T,T], row = query, column = key; valid during the call.
using LayerVisitor = std::function<void(std::int64_t layer, const float* weights)>;

struct AttentionSource {
  std::string label;
  std::int64_t layers = 0, heads = 0;
  std::vector<AttentionSequence> sequences;
  // A token for people; the position's number if tokens are unknown.
  std::function<std::string(std::size_t sequence, std::int64_t position)> token;
  // Calls the visitor for layers 0, 1, ... of a sequence. Throws Error for what is not attention.
  std::function<void(std::size_t sequence, const LayerVisitor& visitor)> visit;
};

// Runs the model on each sequence when it is visited. `token_text` may be empty: then tokens show
// as their ids.
AttentionSource AttentionOfModel(const Model& model, const GateRun& gates, std::string label,
                                 std::vector<std::vector<std::int32_t>> sequences,
                                 std::function<std::string(std::int32_t)> token_text);

// Reads F.safetensors: `attn` [L,H,T,T] or [B,L,H,T,T], or `blocks.N.attn.hook_pattern` [H,T,T] or
// [B,H,T,T] for N = 0, 1, ... The tokens are in F.json beside it, if there is one: "tokens" (texts)
// or "ids" (numbers) or both, [T], or [B,T] for a batch.
AttentionSource AttentionOfFile(const std::filesystem::path& path, std::string label);

// A source with one of the sequences only.
AttentionSource OneSequence(const AttentionSource& source, std::size_t sequence);

// Refuses what cannot be attention, [H,T,T] of one layer: NaN, infinite or negative weights,
// weights of the future, rows that sum to more than 1 + tolerance. Rows below 1 are legal (gated
// heads). The message names the first offending entry.
struct AttentionPlace {
  std::string source;  // file and tensor
  std::int64_t layer = 0, sequence = 0;
  bool batched = false;
};
void CheckAttention(const float* weights, std::int64_t heads, std::int64_t length,
                    double row_tolerance, const AttentionPlace& place);

}  // namespace clearhead
