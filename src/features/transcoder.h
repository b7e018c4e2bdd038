// SPDX-License-Identifier: MIT
// A transcoder: a wide, sparse stand-in for a model's MLPs. Of every layer l it has F features with
//
//   pre[f]  = (input_scale x) . W_enc[f] + b_enc[f]          x: what the MLP of layer l reads
//   act[f]  = pre[f] where it fires, else 0
//   y(t)    = b_dec(t) + sum over l <= t, f of act(l, f) W_dec(l, f, t)  (+ x(t) W_skip(t)^T)
//
// where y(t) stands for the MLP output of layer t. A feature of a cross-layer transcoder writes
// into the layers l, l+1, ..., L-1, one of a per-layer transcoder into l alone.
//
// Encoding is one product; decoding gathers the rows of what fires. Weights stay where the file is
// mapped, in fp32 or 16 bits: opening reads nothing but headers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/linear.h"
#include "kernels/sparse_rows.h"
#include "model/model.h"
#include "model/taps.h"

namespace clearhead {

enum class TranscoderKind { kCrossLayer, kPerLayer };

enum class FeatureActivation {
  kRelu,      // fires above 0
  kJumpRelu,  // fires above a threshold of its own
  kTopK,      // the k largest of a row and layer, whatever their sign
};

struct TranscoderConfig {
  TranscoderKind kind = TranscoderKind::kCrossLayer;
  FeatureActivation activation = FeatureActivation::kJumpRelu;
  std::int64_t layers = 0;          // L
  std::int64_t width = 0;           // C
  std::int64_t features = 0;        // F, of every layer
  std::int64_t k = 0;               // of kTopK
  Tap reads = Tap::kLn2Normalized;  // or kResidMid
  std::string model = {};           // what it was made for, for people
  // Fingerprint of that model's weights (16 hexadecimal digits); empty where the files do not say.
  std::string model_hash = {};
  // Positions before this one took no part in training: graphs leave them to the model (the MLP's
  // output there is one error).
  std::int64_t first_position = 0;
};

// How the features of one layer write into one MLP output: feature f adds act * scale * the C
// values at rows + f * stride.
struct DecoderRows {
  Weight rows;
  std::int64_t stride = 0;
  float scale = 1.0f;
};

struct TranscoderLayer {
  Linear encoder;  // C -> F, with b_enc
  float input_scale = 1.0f;
  const float* threshold = nullptr;     // [F], of kJumpRelu
  std::vector<DecoderRows> writes;      // into layer l, l+1, ...
  const float* decoder_bias = nullptr;  // [C], of the MLP output of this layer
  std::optional<Linear> skip;           // C -> C without bias
};

struct Transcoder {
  TranscoderConfig config;
  std::vector<TranscoderLayer> layers;
  std::shared_ptr<const void> storage;  // what the weights point to
};

// One past the last layer that a feature of `layer` writes into.
std::int64_t LastTarget(const TranscoderConfig& config, std::int64_t layer);

// Throws Error, naming what differs, unless it was made for a model of this shape: layers, width, a
// tap that the model has in front of its MLPs, and the recorded fingerprint if there is one.
void CheckFits(const Transcoder& transcoder, const Model& model);

// pre[R,F] of x[R,C].
void PreActivations(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows,
                    const float* x, float* pre);

// What fires, of pre[R,F]. Throws Error where it is not finite.
void Activate(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows, const float* pre,
              SparseRows& active);

// Both, some rows at a time: memory does not grow with rows times features.
SparseRows Encode(const Transcoder& transcoder, std::int64_t layer, std::int64_t rows,
                  const float* x);

// y[R,C] = the MLP output of layer `target` from what fires in layers 0 .. target (`active[l]`)
// and, for a skip, x[R,C] as that layer reads it. Throws Error where it is not finite.
void Reconstruct(const Transcoder& transcoder, std::int64_t target, std::int64_t rows,
                 std::span<const SparseRows> active, const float* x, float* y);

// y[R,C] += what `active` of `layer` writes into `target`.
void AddWritten(const Transcoder& transcoder, std::int64_t layer, std::int64_t target,
                const SparseRows& active, float* y);

// Single rows in fp32, [C]: what makes feature f of `layer` fire, and what it writes into `target`.
void EncoderRow(const Transcoder& transcoder, std::int64_t layer, std::int64_t feature, float* out);
void DecoderRow(const Transcoder& transcoder, std::int64_t layer, std::int64_t feature,
                std::int64_t target, float* out);

// "clt" and "plt"; "relu", "jumprelu", "topk".
std::string_view NameOf(TranscoderKind kind);
std::string_view NameOf(FeatureActivation activation);

}  // namespace clearhead
