// SPDX-License-Identifier: MIT
// One prompt through one model, with heads switched off: maps, statistics, predictions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "features/feature_intervention.h"
#include "features/transcoder.h"
#include "heads/head_report.h"
#include "use/predict.h"

namespace clearhead {

// Thrown out of a run whose answer nobody waits for any more.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// The weight with which a head's query reads a key.
struct AttentionCell {
  HeadId head;
  std::int64_t query = 0, key = 0;
};

struct PromptRunOptions {
  std::vector<HeadId> ablated;          // their outputs (hook_z) are set to 0, at all positions
  std::vector<AttentionCell> cut = {};  // these weights are 0
  // Features of `transcoder` that are changed; without any it may be null.
  const Transcoder* transcoder = nullptr;
  std::vector<FeatureIntervention> features = {};
  bool open_gates = false;      // run a gated model as a dense one
  std::int64_t cells = 64;      // maps are reduced by maximum to at most this many cells a side
  std::int64_t likeliest = 10;  // predictions kept at each position
  std::optional<HeadId> whole_head = {};      // keep this head's map unreduced
  std::optional<std::int64_t> position = {};  // keep every head's row and column of this token
  std::function<bool()> cancelled = {};       // asked between layers; true: throw Cancelled
  // What nobody asks for need not be computed: maps and statistics of every head, predictions.
  bool heads = true, predictions = true;
};

struct PositionPrediction {
  std::vector<Prediction> likeliest;
  // Of the token that follows in the prompt; absent at the last position.
  std::optional<double> loss;  // nats
};

struct PromptRun {
  std::int64_t length = 0;  // T
  std::int64_t tokens_per_cell = 1;
  std::int64_t cells = 0;         // n = ceil(T / tokens_per_cell)
  std::vector<float> maps;        // [L,H,n,n]; empty without options.heads
  std::vector<float> whole;       // [T,T] of whole_head, else empty
  std::vector<float> reads;       // [L,H,T]: what `position` reads, else empty
  std::vector<float> read_by;     // [L,H,T]: who reads `position`, else empty
  std::vector<HeadResult> heads;  // layer by layer, over this prompt
  ModelSummary summary;
  std::vector<PositionPrediction> predictions;  // [T]
  std::optional<double> loss;                   // mean over the T-1 known next tokens
};

// ids [T]. One layer's maps exist at a time; logits in pieces.
PromptRun RunPrompt(const Model& model, std::span<const std::int32_t> ids,
                    const PromptRunOptions& options);

}  // namespace clearhead
