// SPDX-License-Identifier: MIT
#include "train/transcoder_piece.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "kernels/gemm_by_panels.h"

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

// Appends a row: of the silent features the `count` with the largest pre-activations, if positive.
// `bias` may be null: then the pre-activations have it already.
void SelectSilent(const std::vector<std::int32_t>& silent, std::int64_t count, const float* pre,
                  const float* bias, SparseRows& out) {
  const auto value = [&](std::int32_t f) { return bias == nullptr ? pre[f] : pre[f] + bias[f]; };
  std::vector<std::int32_t> order = silent;
  const auto kept =
      static_cast<std::ptrdiff_t>(std::min(count, static_cast<std::int64_t>(order.size())));
  std::nth_element(order.begin(), order.begin() + kept, order.end(),
                   [&](std::int32_t a, std::int32_t b) {
                     return value(a) != value(b) ? value(a) > value(b) : a < b;
                   });
  order.resize(static_cast<std::size_t>(kept));
  std::sort(order.begin(), order.end());
  for (const std::int32_t f : order) {
    if (value(f) <= 0.0f) continue;
    out.column.push_back(f);
    out.value.push_back(value(f));
  }
  out.begin.push_back(out.size());
}

// The first row of a piece, from `row` on, on which silent features learn. (Pieces begin with one.)
std::int64_t NextAuxRow(std::int64_t row) { return (row + kAuxEvery - 1) / kAuxEvery * kAuxEvery; }

}  // namespace

void EncodeRows(std::int64_t rows, TableOf<const float> x, const PackedPanels& encoder,
                float* pre) {
  Gemm(rows, {x.data, x.stride}, encoder, {.c = pre, .stride = encoder.n()});
}

void AddBias(std::int64_t rows, std::int64_t F, const TranscoderTensors& w, float* pre) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t f = 0; f < F; ++f) pre[r * F + f] += w.encoder_bias[f];
  }
}

void Clear(SparseRows& rows) {
  rows.begin.assign(1, 0);
  rows.column.clear();
  rows.value.clear();
}

// Thresholds are compared with products without bias: they are moved instead of them.
void TranscoderStep::SetLimits(std::size_t layer, const float* bias, float below,
                               std::vector<float>& limit) const {
  for (std::size_t f = 0; f < limit.size(); ++f) {
    limit[f] = threshold_[layer][f] - below - bias[f];
  }
}

// What fires in a piece, layer by layer. Pre-activations are looked at while they are in the cache
// and kept nowhere, but for the rows on which silent features learn and for kTopK, which sorts
// whole rows. Biases are added to the few that are kept.
void TranscoderStep::EncodePiece(const TranscoderRows& batch,
                                 const std::vector<TranscoderTensors>& weights, Piece& piece) {
  const std::int64_t C = shape_.width, F = shape_.features;
  const bool top = options_.rule == FiringRule::kTopK;
  const bool jump = options_.rule == FiringRule::kJumpRelu && backward_;
  const bool aux = backward_ && options_.aux > 0.0f;
  const std::int64_t every = top ? 1 : kAuxEvery;  // of the rows are kept
  static thread_local Buffer<float> scratch;       // of the layer at hand
  static thread_local FoundEntries found;
  const std::int64_t kept_rows = (piece.rows + every - 1) / every;
  if (scratch.size() < kept_rows * F) scratch = Buffer<float>(kept_rows * F);
  float* pre = scratch.data();
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const float* bias = weights[at].encoder_bias;
    const TableOf<const float> x{batch.x[at] + piece.first * C, C};
    if (top) {
      EncodeRows(piece.rows, x, encoder_[at], pre);
      AddBias(piece.rows, F, weights[at], pre);
      SelectLargest(piece.rows, F, std::llround(options_.l0), pre, piece.fired[at]);
      bias = nullptr;
    } else {
      SetLimits(at, bias, jump ? 0.5f * kRectangle : 0.0f, piece.limit);
      found.count = 0;
      const bool keep = aux && !silent_[at].empty();
      GemmByPanels(piece.rows, {x.data, x.stride}, encoder_[at], [&](const FinishedPanel& p) {
        FindAbove({p.first_row, p.rows, p.first_column, p.columns, p.values, p.stride},
                  piece.limit.data(), found);
        for (std::int64_t r = NextAuxRow(p.first_row); keep && r < p.first_row + p.rows;
             r += kAuxEvery) {
          std::copy_n(p.values + (r - p.first_row) * p.stride, p.columns,
                      pre + r / kAuxEvery * F + p.first_column);
        }
      });
      SparseRows& entries = jump ? piece.near[at] : piece.fired[at];
      SortByRow(found, piece.rows, entries);
      for (std::size_t e = 0; e < entries.value.size(); ++e) {
        entries.value[e] += bias[entries.column[e]];
      }
      if (jump) KeepAbove(entries, threshold_[at], piece.fired[at]);
    }
    Clear(piece.aux[at]);
    for (std::int64_t r = 0; aux && r < piece.rows; r += kAuxEvery) {
      SelectSilent(silent_[at], options_.aux_count, pre + r / every * F, bias, piece.aux[at]);
    }
  }
}

// yhat of all rows, into d_y. One pair of layers after the other: the part of the decoder that
// stands between them, some megabytes, stays in the cache while all rows gather from it. Sums are
// in the order of the layers that write.
void TranscoderStep::Decode(const std::vector<TranscoderTensors>& weights) {
  const std::int64_t C = shape_.width, L = shape_.layers, row = L * C;
  const auto for_pieces = [&](const auto& body) {
    ParallelFor(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
      const Piece& piece = pieces_[static_cast<std::size_t>(p)];
      body(piece, d_y_.data() + piece.first * row);
    });
  };
  for_pieces([&](const Piece& piece, float* y) {
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      for (std::int64_t l = 0; l < L; ++l) {
        std::copy_n(weights[static_cast<std::size_t>(l)].decoder_bias, C, y + r * row + l * C);
      }
    }
  });
  for (std::int64_t to = 0; to < L; ++to) {
    for (std::int64_t from = 0; from <= to; ++from) {
      if (to - from >= shape_.targets(from)) continue;
      const auto at = static_cast<std::size_t>(from);
      const TableOf<const float> table{weights[at].decoder + (to - from) * C,
                                       shape_.targets(from) * C};
      for_pieces([&](const Piece& piece, float* y) {
        DecodeRows(piece.fired[at], C, table, {y + to * C, row});
      });
    }
  }
}

// The errors of the piece; leaves d loss / d yhat.
void TranscoderStep::ErrorsOfPiece(const TranscoderRows& batch, Piece& piece) {
  const std::int64_t C = shape_.width, L = shape_.layers, row = L * C;
  float* y = d_y_.data() + piece.first * row;
  std::fill(piece.error.begin(), piece.error.end(), 0.0);
  std::fill(piece.power.begin(), piece.power.end(), 0.0);
  const float factor = 2.0f / static_cast<float>(own_.total * row);
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
  const float factor = 2.0f / static_cast<float>(own_.total * row);
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
