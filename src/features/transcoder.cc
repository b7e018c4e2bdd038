// SPDX-License-Identifier: MIT
#include "features/transcoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "core/buffer.h"
#include "core/error.h"
#include "core/threads.h"
#include "model/fingerprint.h"

namespace clearhead {
namespace {

// Pre-activations that exist at a time: 16 MB.
constexpr std::int64_t kPreActivations = 1 << 22;

bool AllFinite(const float* x, std::int64_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    finite &= (std::bit_cast<std::uint32_t>(x[i]) & kExponent) != kExponent;
  }
  return finite;
}

// Matrices are not read when files are opened, and a NaN never fires: it has to be looked for.
void CheckFinite(std::int64_t rows, std::int64_t columns, const float* x, std::int64_t layer,
                 const char* what) {
  std::atomic<bool> finite = true;
  ParallelRanges(rows, [&](int, std::int64_t first, std::int64_t last) {
    if (!AllFinite(x + first * columns, (last - first) * columns)) finite = false;
  });
  if (finite) return;
  Fail(
      "layer {} of the features has {} that are not finite numbers: the weights hold such values, "
      "or values too large for what they read",
      layer, what);
}

// y[r] += what fires in row r writes. Rows in 16 bits are widened one by one.
void AddRows(const SparseRows& active, const DecoderRows& rows, std::int64_t width, float* y) {
  if (rows.rows.is_f32() && rows.scale == 1.0f) {
    return DecodeRows(active, width, {rows.rows.f32(), rows.stride}, {y, width});
  }
  ParallelFor(active.rows(), [&](std::int64_t r) {
    thread_local std::vector<float> row;
    row.resize(static_cast<std::size_t>(width));
    float* out = y + r * width;
    for (std::int64_t e = active.begin[r]; e < active.begin[r + 1]; ++e) {
      rows.rows.CopyTo(active.column[e] * rows.stride, width, row.data());
      const float value = active.value[e] * rows.scale;
      for (std::int64_t i = 0; i < width; ++i) out[i] += value * row[static_cast<std::size_t>(i)];
    }
  });
}

}  // namespace

std::int64_t LastTarget(const TranscoderConfig& config, std::int64_t layer) {
  return config.kind == TranscoderKind::kCrossLayer ? config.layers : layer + 1;
}

void CheckFits(const Transcoder& transcoder, const Model& model) {
  const TranscoderConfig& c = transcoder.config;
  if (c.layers != model.config.layers || c.width != model.config.width) {
    Fail(
        "the features are of a model with {} layers of width {}, this model has {} of width {}; "
        "give the model that they were made for",
        c.layers, c.width, model.config.layers, model.config.width);
  }
  if (c.reads == Tap::kLn2Normalized && model.config.norm_place != NormPlace::kBefore) {
    Fail(
        "the features read ln2.hook_normalized, but this model's norms stand behind its MLPs; they "
        "can only read hook_resid_mid");
  }
  if (c.model_hash.empty()) return;
  const std::string hash = fmt::format("{:016x}", WeightsFingerprint(model));
  if (hash != c.model_hash) {
    Fail(
        "the features were made for {}the weights with fingerprint {}, this model's is {}; give "
        "the model that they were made for",
        c.model.empty() ? "" : fmt::format("'{}', ", c.model), c.model_hash, hash);
  }
}

void PreActivations(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows,
                    const float* x, float* pre) {
  const TranscoderLayer& l = transcoder.layers[static_cast<std::size_t>(layer)];
  if (l.input_scale == 1.0f) return LinearForward(l.encoder, rows, x, pre);
  Buffer<float> scaled(rows * transcoder.config.width);
  for (std::int64_t i = 0; i < scaled.size(); ++i) scaled[i] = x[i] * l.input_scale;
  LinearForward(l.encoder, rows, scaled.data(), pre);
}

void Activate(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows, const float* pre,
              SparseRows& active) {
  const TranscoderConfig& c = transcoder.config;
  CheckFinite(rows, c.features, pre, layer, "pre-activations");
  if (c.activation == FeatureActivation::kTopK) {
    return SelectLargest(rows, c.features, c.k, pre, active);
  }
  SelectAbove(rows, c.features, pre, transcoder.layers[static_cast<std::size_t>(layer)].threshold,
              active);
}

SparseRows Encode(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows,
                  const float* x) {
  const std::int64_t F = transcoder.config.features, C = transcoder.config.width;
  const std::int64_t step =
      std::clamp<std::int64_t>(kPreActivations / F, 1, std::max<std::int64_t>(rows, 1));
  Buffer<float> pre(step * F);
  SparseRows all, piece;
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    PreActivations(transcoder, layer, count, x + first * C, pre.data());
    Activate(transcoder, layer, count, pre.data(), piece);
    AppendRows(piece, all);
  }
  return all;
}

void Reconstruct(const Transcoder& transcoder, std::int64_t target, std::int64_t rows,
                 std::span<const SparseRows> active, const float* x, float* y) {
  const std::int64_t C = transcoder.config.width;
  const TranscoderLayer& to = transcoder.layers[static_cast<std::size_t>(target)];
  if (to.skip) {
    LinearForward(*to.skip, rows, x, y);
  } else {
    std::fill(y, y + rows * C, 0.0f);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < C; ++i) y[r * C + i] += to.decoder_bias[i];
  }
  for (std::int64_t l = 0; l <= target; ++l) {
    if (target >= LastTarget(transcoder.config, l)) continue;
    AddWritten(transcoder, l, target, active[static_cast<std::size_t>(l)], y);
  }
  CheckFinite(rows, C, y, target, "reconstructions");
}

void AddWritten(const Transcoder& transcoder, std::int64_t layer, std::int64_t target,
                const SparseRows& active, float* y) {
  AddRows(active,
          transcoder.layers[static_cast<std::size_t>(layer)]
              .writes[static_cast<std::size_t>(target - layer)],
          transcoder.config.width, y);
}

void EncoderRow(const Transcoder& transcoder, std::int64_t layer, std::int64_t feature,
                float* out) {
  const TranscoderLayer& l = transcoder.layers[static_cast<std::size_t>(layer)];
  const Linear row = OutputsOf(l.encoder, feature, 1);
  CopyMatrix(row, out);
  for (std::int64_t i = 0; i < row.in; ++i) out[i] *= l.input_scale;
}

void DecoderRow(const Transcoder& transcoder, std::int64_t layer, std::int64_t feature,
                std::int64_t target, float* out) {
  const DecoderRows& rows = transcoder.layers[static_cast<std::size_t>(layer)]
                                .writes[static_cast<std::size_t>(target - layer)];
  const std::int64_t C = transcoder.config.width;
  rows.rows.CopyTo(feature * rows.stride, C, out);
  for (std::int64_t i = 0; i < C; ++i) out[i] *= rows.scale;
}

std::string_view NameOf(TranscoderKind kind) {
  return kind == TranscoderKind::kCrossLayer ? "clt" : "plt";
}

std::string_view NameOf(FeatureActivation activation) {
  switch (activation) {
    case FeatureActivation::kRelu:
      return "relu";
    case FeatureActivation::kJumpRelu:
      return "jumprelu";
    case FeatureActivation::kTopK:
      break;
  }
  return "topk";
}

}  // namespace clearhead
