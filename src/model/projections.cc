// SPDX-License-Identifier: MIT
#include "model/projections.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "kernels/rotary.h"
#include "model/split_inputs.h"

namespace clearhead {
namespace {

// The vectors of query (0), key (1) or value (2) in a [R,P] buffer as [B,T,H,D].
TensorView<float> Heads(const Pass& pass, float* rows, int part) {
  const ModelConfig& config = pass.config();
  const std::int64_t D = config.head_size(), P = config.qkv_width();
  const std::int64_t heads = part == 0 ? config.heads : config.kv_heads();
  return {rows + ColumnOf(config, part),
          {pass.batch, pass.length, heads, D},
          {pass.length * P, P, D, 1}};
}

// Where the norm of queries or keys finds its vectors, and where its statistics begin.
struct NormedPart {
  Norm norm;
  NormRows place;
  std::int64_t column, statistics;
};
NormedPart NormedPartOf(const Pass& pass, const BlockLayers& layers, int part) {
  const ModelConfig& config = pass.config();
  const bool whole = config.query_key_norm == QueryKeyNorm::kWhole;
  const std::int64_t heads = part == 0 ? config.heads : config.kv_heads();
  return {.norm = part == 0 ? layers.query_norm : layers.key_norm,
          .place = {pass.rows(), whole ? 1 : heads, config.qkv_width()},
          .column = ColumnOf(config, part),
          .statistics = part == 0 ? 0 : pass.rows() * config.heads};
}

void CopyValues(const Pass& pass, const float* from, float* to) {
  const ModelConfig& config = pass.config();
  const std::int64_t P = config.qkv_width(), begin = ColumnOf(config, 2);
  for (std::int64_t r = 0; r < pass.rows(); ++r) {
    std::copy(from + r * P + begin, from + (r + 1) * P, to + r * P + begin);
  }
}

// raw -> qkv.
void ClampOrNorm(const Pass& pass, const BlockLayers& layers, const BlockActivations& a) {
  const ModelConfig& config = pass.config();
  if (config.clip_qkv) {
    const float limit = *config.clip_qkv;
    const std::int64_t count = pass.rows() * config.qkv_width();
    for (std::int64_t i = 0; i < count; ++i) a.qkv[i] = std::clamp(a.qkv_raw[i], -limit, limit);
  }
  if (config.query_key_norm == QueryKeyNorm::kNone) return;
  for (int part = 0; part < 2; ++part) {
    const NormedPart n = NormedPartOf(pass, layers, part);
    NormForward(n.norm, n.place, a.qkv_raw + n.column, a.qkv + n.column, a.qk_mean + n.statistics,
                a.qk_scale + n.statistics);
  }
  if (a.qkv != a.qkv_raw) CopyValues(pass, a.qkv_raw, a.qkv);
}

RotaryRows RotaryPlace(const Pass& pass, int part) {
  const ModelConfig& config = pass.config();
  return {.rows = pass.rows(),
          .length = pass.length,
          .heads = part == 0 ? config.heads : config.kv_heads(),
          .head_size = config.head_size(),
          .stride = config.qkv_width()};
}

// Turns queries and keys in place.
void TurnPositions(const Pass& pass, Activations& activations, bool inverse, float* rows) {
  const ModelConfig& config = pass.config();
  if (activations.rotary_first != pass.past()) {
    RotaryTable(config.RotaryFrequencies(), pass.past(), pass.length, activations.rotary_cos,
                activations.rotary_sin);
    activations.rotary_first = pass.past();
  }
  for (int part = 0; part < 2; ++part) {
    Rotate(RotaryPlace(pass, part), activations.rotary_cos, activations.rotary_sin, inverse,
           rows + ColumnOf(config, part));
  }
}

bool Rotates(const Pass& pass) { return pass.config().position == PositionKind::kRotary; }

}  // namespace

void QueryKeyValueForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                          const float* in, Activations& activations) {
  const std::int64_t R = pass.rows(), C = pass.config().width, P = pass.config().qkv_width();
  const BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  for (int i = 0; i < layers.projection_count; ++i) {
    const BlockLayers::Projection& projection = layers.projections[static_cast<std::size_t>(i)];
    LinearForward(projection.layer.linear, R, {in, C}, {a.qkv_raw + projection.column, P});
  }
  VisitSplitInputs(pass, layer, layers, a);
  pass.Visit({Tap::kQ, layer}, Heads(pass, a.qkv_raw, 0));
  pass.Visit({Tap::kK, layer}, Heads(pass, a.qkv_raw, 1));
  pass.Visit({Tap::kV, layer}, Heads(pass, a.qkv_raw, 2));
  if (pass.config().changes_projections()) ClampOrNorm(pass, layers, a);
  if (!Rotates(pass)) return;
  TurnPositions(pass, activations, /*inverse=*/false, a.qkv);
  pass.Visit({Tap::kRotQ, layer}, Heads(pass, a.qkv, 0));
  pass.Visit({Tap::kRotK, layer}, Heads(pass, a.qkv, 1));
}

void KeyValueForward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                     const float* in, Activations& activations) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, P = config.qkv_width();
  const BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  for (int part = 1; part < 3; ++part) {
    LinearForward(PartOf(layers, config, part), R, {in, C},
                  {a.qkv_raw + ColumnOf(config, part), P});
  }
  if (config.changes_projections() || Rotates(pass)) {  // the unused queries go along
    for (std::int64_t r = 0; r < R; ++r) {
      std::fill_n(a.qkv_raw + r * P, config.heads_width(), 0.0f);
    }
  }
  if (config.changes_projections()) ClampOrNorm(pass, layers, a);
  if (Rotates(pass)) TurnPositions(pass, activations, /*inverse=*/false, a.qkv);
}

void QueryKeyValueBackward(const Pass& pass, std::int64_t layer, const BlockLayers& layers,
                           const float* in, Activations& activations,
                           const RoleTensors<float*>& gradients, PackedBf16* scratch, float* d_in) {
  const ModelConfig& config = pass.config();
  const std::int64_t R = pass.rows(), C = config.width, P = config.qkv_width();
  const BlockActivations& a = activations.blocks[static_cast<std::size_t>(layer)];
  float* d_qkv = activations.d_qkv;
  float* d_raw = activations.d_raw;
  if (Rotates(pass)) {
    pass.VisitGradient({Tap::kRotQ, layer}, Heads(pass, d_qkv, 0));
    pass.VisitGradient({Tap::kRotK, layer}, Heads(pass, d_qkv, 1));
    TurnPositions(pass, activations, /*inverse=*/true, d_qkv);
  }
  if (config.query_key_norm != QueryKeyNorm::kNone) {
    std::fill(d_raw, d_raw + R * P, 0.0f);
    for (int part = 0; part < 2; ++part) {
      const NormedPart n = NormedPartOf(pass, layers, part);
      NormBackward(n.norm, n.place, a.qkv_raw + n.column, a.qk_mean + n.statistics,
                   a.qk_scale + n.statistics, d_qkv + n.column, d_raw + n.column,
                   gradients[part == 0 ? Role::kQueryNorm : Role::kKeyNorm], nullptr);
    }
    CopyValues(pass, d_qkv, d_raw);
  }
  if (config.clip_qkv) {  // what was clamped passes nothing on
    for (std::int64_t i = 0; i < R * P; ++i) {
      if (std::abs(a.qkv_raw[i]) > *config.clip_qkv) d_raw[i] = 0.0f;
    }
  }
  pass.VisitGradient({Tap::kQ, layer}, Heads(pass, d_raw, 0));
  pass.VisitGradient({Tap::kK, layer}, Heads(pass, d_raw, 1));
  pass.VisitGradient({Tap::kV, layer}, Heads(pass, d_raw, 2));
  VisitSplitInputGradients(pass, layer, layers, a, d_raw);
  // raw = in W_QKV + bias
  for (int i = 0; i < layers.projection_count; ++i) {
    const auto& [projection, column] = layers.projections[static_cast<std::size_t>(i)];
    LinearBackwardInput(projection.linear, R, {d_raw + column, P}, {d_in, C},
                        /*accumulate=*/i > 0);
    LinearBackwardWeight(projection.linear, R, {in, C}, {d_raw + column, P}, scratch,
                         gradients[projection.weight], gradients[projection.bias]);
  }
}

}  // namespace clearhead
