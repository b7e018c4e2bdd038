// SPDX-License-Identifier: MIT
#include "train/transcoder_piece.h"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.h"

namespace clearhead {
namespace {

// Of entries those above their column's threshold.
void KeepAbove(const SparseRows& from, const std::vector<float>& threshold, SparseRows& to) {
  Clear(to);
  for (std::int64_t r = 0; r < from.rows(); ++r) {
    for (std::int64_t e = from.begin[r]; e < from.begin[r + 1]; ++e) {
      if (!(from.value[e] > threshold[static_cast<std::size_t>(from.column[e])])) continue;
      to.column.push_back(from.column[e]);
      to.value.push_back(from.value[e]);
    }
    to.begin.push_back(to.size());
  }
}

}  // namespace

void EncodeRows(std::int64_t rows, std::int64_t C, std::int64_t F, TableOf<const float> x,
                const TranscoderTensors& w, float* pre) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::copy(w.encoder_bias, w.encoder_bias + F, pre + r * F);
  }
  Gemm({rows, F, C}, {x.data, x.stride}, {w.encoder, C, Op::kTranspose}, pre, F,
       /*accumulate=*/true);
}

void Clear(SparseRows& rows) {
  rows.begin.assign(1, 0);
  rows.column.clear();
  rows.value.clear();
}

// What fires in a piece, layer by layer while its pre-activations are in the cache.
void TranscoderStep::EncodePiece(const TranscoderRows& batch,
                                 const std::vector<TranscoderTensors>& weights, Piece& piece) {
  const std::int64_t C = shape_.width, F = shape_.features;
  static thread_local Buffer<float> scratch;  // of the layer at hand: one per thread stays in cache
  if (scratch.size() < piece.rows * F) scratch = Buffer<float>(piece.rows * F);
  float* pre = scratch.data();
  const bool jump = options_.rule == FiringRule::kJumpRelu;
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const std::vector<float>& threshold = threshold_[at];
    EncodeRows(piece.rows, C, F, {batch.x[at] + piece.first * C, C}, weights[at], pre);
    if (options_.rule == FiringRule::kTopK) {
      SelectLargest(piece.rows, F, std::llround(options_.l0), pre, piece.fired[at]);
    } else if (jump && backward_) {
      for (std::size_t f = 0; f < threshold.size(); ++f) {
        piece.near_lower[f] = threshold[f] - 0.5f * kRectangle;
      }
      SelectAbove(piece.rows, F, pre, piece.near_lower.data(), piece.near[at]);
      KeepAbove(piece.near[at], threshold, piece.fired[at]);
    } else {
      SelectAbove(piece.rows, F, pre, threshold.data(), piece.fired[at]);
    }
    Clear(piece.aux[at]);
    if (!backward_ || options_.aux == 0.0f) continue;
    // Of every eighth row the silent features with the largest pre-activations.
    std::vector<std::int32_t> order;
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      if ((piece.first + r) % kAuxEvery != 0) continue;
      const float* row = pre + r * F;
      order = silent_[at];
      const auto kept = static_cast<std::ptrdiff_t>(
          std::min<std::int64_t>(options_.aux_count, static_cast<std::int64_t>(order.size())));
      std::nth_element(order.begin(), order.begin() + kept, order.end(),
                       [row](std::int32_t a, std::int32_t b) {
                         return row[a] != row[b] ? row[a] > row[b] : a < b;
                       });
      order.resize(static_cast<std::size_t>(kept));
      std::sort(order.begin(), order.end());
      for (const std::int32_t f : order) {
        if (row[f] <= 0.0f) continue;
        piece.aux[at].column.push_back(f);
        piece.aux[at].value.push_back(row[f]);
      }
      piece.aux[at].begin.push_back(piece.aux[at].size());
    }
  }
}

// yhat of the piece and its errors; leaves d loss / d yhat.
void TranscoderStep::DecodePiece(const TranscoderRows& batch,
                                 const std::vector<TranscoderTensors>& weights, Piece& piece) {
  const std::int64_t C = shape_.width, L = shape_.layers, row = L * C;
  float* y = d_y_.data() + piece.first * row;
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    for (std::int64_t l = 0; l < L; ++l) {
      const float* bias = weights[static_cast<std::size_t>(l)].decoder_bias;
      std::copy(bias, bias + C, y + r * row + l * C);
    }
  }
  for (std::int64_t l = 0; l < L; ++l) {
    const std::int64_t length = shape_.targets(l) * C;
    const auto at = static_cast<std::size_t>(l);
    DecodeRows(piece.fired[at], length, {weights[at].decoder, length}, {y + l * C, row});
  }
  std::fill(piece.error.begin(), piece.error.end(), 0.0);
  std::fill(piece.power.begin(), piece.power.end(), 0.0);
  const float factor = 2.0f / static_cast<float>(rows_ * row);
  const float* wanted = batch.y + piece.first * row;
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    for (std::int64_t l = 0; l < L; ++l) {
      float error = 0.0f, power = 0.0f;
      for (std::int64_t i = r * row + l * C; i < r * row + (l + 1) * C; ++i) {
        const float difference = y[i] - wanted[i];
        error += difference * difference;
        power += wanted[i] * wanted[i];
        y[i] = difference * factor;
      }
      piece.error[static_cast<std::size_t>(l)] += error;
      piece.power[static_cast<std::size_t>(l)] += power;
    }
  }
}

// What silent features would make of the error that is left: its gradient, in d_aux.
void TranscoderStep::SilentPiece(const std::vector<TranscoderTensors>& weights, Piece& piece) {
  const std::int64_t C = shape_.width, row = shape_.layers * C;
  const std::int64_t first = (piece.first + kAuxEvery - 1) / kAuxEvery;
  const std::int64_t rows = piece.aux[0].rows();
  float* d_aux = d_aux_.data() + first * row;
  // In units of d_y: (what they make) * factor + d_y is the gradient of the error that then is
  // left.
  const float factor = 2.0f / static_cast<float>(rows_ * row);
  std::fill(d_aux, d_aux + rows * row, 0.0f);
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const std::int64_t length = shape_.targets(l) * C;
    DecodeRows(piece.aux[at], length, {weights[at].decoder, length}, {d_aux + l * C, row});
  }
  const float weight = options_.aux * static_cast<float>(kAuxEvery);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* d_y = d_y_.data() + (first + r) * kAuxEvery * row;
    for (std::int64_t i = 0; i < row; ++i) {
      d_aux[r * row + i] = weight * (d_aux[r * row + i] * factor + d_y[i]);
    }
  }
}

}  // namespace clearhead
