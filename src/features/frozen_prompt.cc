// SPDX-License-Identifier: MIT
#include "features/frozen_prompt.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/head_weights.h"
#include "model/run.h"
#include "use/recorder.h"

namespace clearhead {
namespace {

std::vector<TapId> TapsOf(const ModelConfig& config, Tap reads) {
  std::vector<TapId> taps = {
      {Tap::kEmbed, 0}, {Tap::kLnFinalScale, 0}, {Tap::kLnFinalNormalized, 0}};
  if (config.position == PositionKind::kLearned) taps.push_back({Tap::kPosEmbed, 0});
  for (std::int64_t l = 0; l < config.layers; ++l) {
    for (const Tap tap :
         {Tap::kPattern, Tap::kResidPre, Tap::kLn1Scale, Tap::kLn2Scale, Tap::kMlpOut, reads}) {
      taps.push_back({tap, l});
    }
    if (config.clip_qkv) taps.push_back({Tap::kV, l});
  }
  return taps;
}

void RefuseClamped(const Buffer<float>& values, float limit, std::int64_t layer) {
  for (const float value : values) {
    if (std::abs(value) <= limit) continue;
    Fail(
        "layer {} clamps a value of {} to clip_qkv = {}: what is clamped is not linear, and edges "
        "would not add up; give another prompt",
        layer, value, limit);
  }
}

void DropBefore(std::int64_t first, SparseRows& rows) {
  const std::int64_t drop = rows.begin[std::min(first, rows.rows())];
  rows.column.erase(rows.column.begin(), rows.column.begin() + drop);
  rows.value.erase(rows.value.begin(), rows.value.begin() + drop);
  for (std::int64_t& begin : rows.begin) begin = std::max<std::int64_t>(begin - drop, 0);
}

}  // namespace

FrozenPrompt FreezePrompt(const Model& model, const Transcoder* transcoder,
                          std::span<const std::int32_t> ids, const FrozenOptions& options) {
  const ModelConfig& config = model.config;
  if (transcoder != nullptr && !options.checked) CheckFits(*transcoder, model);
  const Tap reads = transcoder != nullptr ? transcoder->config.reads : Tap::kResidMid;
  const auto T = static_cast<std::int64_t>(ids.size());
  const std::int64_t C = config.width;
  CheckTokens(config, ids, 1, T);
  if (options.first_position && (*options.first_position < 0 || *options.first_position >= T)) {
    Fail("features cannot count from position {} on: the prompt has {} tokens (0 to {})",
         *options.first_position, T, T - 1);
  }
  Recorder recorder(TapsOf(config, reads), {}, {});
  const Pass pass{.model = model, .batch = 1, .length = T, .hooks = &recorder};
  Activations activations(config, 1, T, Keep::kNothing, 0);
  ForwardToFinalNorm(pass, ids.data(), activations);

  std::map<TapId, RecordedTensor> kept = recorder.TakeValues();
  const auto take = [&](Tap tap, std::int64_t layer) {
    return std::move(kept.at({tap, layer}).values);
  };
  FrozenPrompt run;
  run.model = &model;
  run.transcoder = transcoder;
  run.ids.assign(ids.begin(), ids.end());
  run.tokens = take(Tap::kEmbed, 0);
  if (config.position == PositionKind::kLearned) run.positions = take(Tap::kPosEmbed, 0);
  run.final_scale = take(Tap::kLnFinalScale, 0);
  run.normalized = take(Tap::kLnFinalNormalized, 0);

  const std::int64_t first = options.first_position.value_or(
      transcoder != nullptr ? transcoder->config.first_position : 0);
  std::vector<SparseRows> active;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    FrozenLayer& layer = run.layers.emplace_back();
    layer.weights = take(Tap::kPattern, l);
    layer.resid_pre = take(Tap::kResidPre, l);
    layer.ln1_scale = take(Tap::kLn1Scale, l);
    layer.ln2_scale = take(Tap::kLn2Scale, l);
    layer.mlp_out = take(Tap::kMlpOut, l);
    layer.input = take(reads, l);
    if (config.clip_qkv) RefuseClamped(take(Tap::kV, l), *config.clip_qkv, l);
    layer.error = Buffer<float>(T * C);
    if (transcoder == nullptr) {
      std::copy(layer.mlp_out.begin(), layer.mlp_out.end(), layer.error.begin());
      active.emplace_back().begin.assign(static_cast<std::size_t>(T + 1), 0);
      continue;
    }
    DropBefore(first, active.emplace_back(Encode(*transcoder, l, T, layer.input.data())));
    Reconstruct(*transcoder, l, T, active, layer.input.data(), layer.error.data());
    for (std::int64_t i = 0; i < T * C; ++i) layer.error[i] = layer.mlp_out[i] - layer.error[i];
  }
  for (std::size_t l = 0; l < active.size(); ++l) run.layers[l].active = std::move(active[l]);
  return run;
}

std::vector<float> LogitsAt(const FrozenPrompt& run, std::int64_t position) {
  std::vector<float> logits(static_cast<std::size_t>(run.config().vocabulary));
  LinearForward(OutputLayer(*run.model), 1, run.normalized.data() + position * run.config().width,
                logits.data());
  return logits;
}

}  // namespace clearhead
