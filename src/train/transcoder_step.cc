// SPDX-License-Identifier: MIT
#include "train/transcoder_step.h"

#include <algorithm>
#include <cmath>

#include "core/threads.h"
#include "train/transcoder_piece.h"

namespace clearhead {
namespace {

float Squares(const float* row, std::int64_t count) {
  float sum = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) sum += row[i] * row[i];
  return sum;
}

}  // namespace

TranscoderStep::~TranscoderStep() = default;

TranscoderStep::TranscoderStep(const TranscoderShape& shape, const TranscoderStepOptions& options,
                               std::int64_t rows)
    : shape_(shape), options_(options), rows_(rows), d_y_(rows * shape.layers * shape.width) {
  const auto L = static_cast<std::size_t>(shape.layers);
  if (options.aux > 0.0f) {
    d_aux_ = Buffer<float>((rows + kAuxEvery - 1) / kAuxEvery * shape.layers * shape.width);
  }
  threshold_.assign(L, std::vector<float>(static_cast<std::size_t>(shape.features), 0.0f));
  if (options.rule == FiringRule::kJumpRelu) norm_ = threshold_;
  silent_.resize(L);
  batch_thresholds_.assign(L, 0.0f);
  entries_.resize(L);
  aux_entries_.resize(L);
  d_pre_.resize(L);
  d_aux_pre_.resize(L);
  for (std::int64_t first = 0; first < rows; first += kPieceRows) {
    Piece& piece = pieces_.emplace_back();
    piece.first = first;
    piece.rows = std::min(kPieceRows, rows - first);
    piece.fired.resize(L);
    piece.near.resize(L);
    piece.aux.resize(L);
    piece.d_pre.resize(L);
    piece.d_aux_pre.resize(L);
    if (options.rule == FiringRule::kJumpRelu) {
      piece.d_threshold.assign(L, std::vector<double>(static_cast<std::size_t>(shape.features)));
      piece.near_lower.resize(static_cast<std::size_t>(shape.features));
    }
    piece.error.resize(L);
    piece.power.resize(L);
  }
}

// Thresholds of this batch, and what else is the same for all rows.
void TranscoderStep::Prepare(const TranscoderRows& batch,
                             const std::vector<TranscoderTensors>& weights,
                             const std::vector<char>& silent) {
  const std::int64_t C = shape_.width, F = shape_.features;
  ParallelFor(shape_.layers, [&](std::int64_t l) {
    const auto at = static_cast<std::size_t>(l);
    std::vector<float>& threshold = threshold_[at];
    silent_[at].clear();
    for (std::int64_t f = 0; f < F && !silent.empty(); ++f) {
      if (silent[static_cast<std::size_t>(l * F + f)]) {
        silent_[at].push_back(static_cast<std::int32_t>(f));
      }
    }
    if (options_.rule == FiringRule::kBatchTopK) {
      const std::int64_t sampled = std::min(kSampledRows, rows_), stride = rows_ / sampled;
      Buffer<float> pre(sampled * F);
      EncodeRows(sampled, C, F, {batch.x[at], stride * C}, weights[at], pre.data());
      const auto kept = std::clamp<std::int64_t>(
          std::llround(options_.l0 * static_cast<double>(sampled)), 1, pre.size());
      std::nth_element(pre.begin(), pre.begin() + (kept - 1), pre.end(), std::greater<>());
      batch_thresholds_[at] = std::max(0.0f, pre[kept - 1]);
      std::fill(threshold.begin(), threshold.end(), batch_thresholds_[at]);
    } else if (options_.rule == FiringRule::kJumpRelu) {
      const std::int64_t row = shape_.targets(l) * C;
      for (std::int64_t f = 0; f < F; ++f) {
        const auto i = static_cast<std::size_t>(f);
        threshold[i] = std::exp(kThresholdRate * weights[at].threshold[f]);
        norm_[at][i] = std::sqrt(Squares(weights[at].decoder + f * row, row));
      }
    }
  });
}

// The pieces' entries one after the other.
void TranscoderStep::Collect() {
  ParallelFor(shape_.layers, [&](std::int64_t l) {
    const auto at = static_cast<std::size_t>(l);
    Clear(entries_[at]);
    Clear(aux_entries_[at]);
    d_pre_[at].clear();
    d_aux_pre_[at].clear();
    for (const Piece& piece : pieces_) {
      AppendRows(piece.fired[at], entries_[at]);
      if (!backward_) continue;
      AppendRows(piece.aux[at], aux_entries_[at]);
      d_pre_[at].insert(d_pre_[at].end(), piece.d_pre[at].begin(), piece.d_pre[at].end());
      d_aux_pre_[at].insert(d_aux_pre_[at].end(), piece.d_aux_pre[at].begin(),
                            piece.d_aux_pre[at].end());
    }
  });
}

void TranscoderStep::WeightGradients(const TranscoderRows& batch,
                                     const std::vector<TranscoderTensors>& weights,
                                     const std::vector<TranscoderTensors>& gradients,
                                     float penalty_weight) {
  const std::int64_t C = shape_.width, F = shape_.features, row = shape_.layers * C;
  std::vector<SparseColumns> columns(entries_.size()), aux_columns(entries_.size());
  ParallelFor(shape_.layers, [&](std::int64_t l) {
    const auto at = static_cast<std::size_t>(l);
    ByColumn(entries_[at], F, columns[at]);
    ByColumn(aux_entries_[at], F, aux_columns[at]);
    const TranscoderTensors& g = gradients[at];
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < C; ++c) g.decoder_bias[c] += d_y_[r * row + l * C + c];
    }
    const auto add_bias = [&g](const SparseRows& entries, const std::vector<float>& d_pre) {
      for (std::size_t e = 0; e < d_pre.size(); ++e) g.encoder_bias[entries.column[e]] += d_pre[e];
    };
    add_bias(entries_[at], d_pre_[at]);
    add_bias(aux_entries_[at], d_aux_pre_[at]);
    if (options_.rule != FiringRule::kJumpRelu) return;
    for (const Piece& piece : pieces_) {
      for (std::int64_t f = 0; f < F; ++f) {  // d p = d theta * theta * rate
        const auto i = static_cast<std::size_t>(f);
        g.threshold[f] +=
            static_cast<float>(piece.d_threshold[at][i] * threshold_[at][i] * kThresholdRate);
      }
    }
    // |W_dec| in the penalty.
    const float c = penalty_weight / static_cast<float>(rows_);
    const std::int64_t length = shape_.targets(l) * C;
    for (std::int64_t f = 0; f < F; ++f) {
      const float n = norm_[at][static_cast<std::size_t>(f)];
      if (n == 0.0f) continue;
      float d_norm = 0.0f;
      for (std::int64_t i = columns[at].begin[f]; i < columns[at].begin[f + 1]; ++i) {
        const float a = entries_[at].value[static_cast<std::size_t>(columns[at].entry[i])];
        const float t = std::tanh(kSlope * a * n);
        d_norm += c * kSlope * a * (1.0f - t * t);
      }
      if (d_norm == 0.0f) continue;
      const float* from = weights[at].decoder + f * length;
      float* to = g.decoder + f * length;
      for (std::int64_t i = 0; i < length; ++i) to[i] += d_norm / n * from[i];
    }
  });
  // Rows of silent features lie at every eighth row of the batch.
  for (std::int64_t l = 0; l < shape_.layers; ++l) {
    const auto at = static_cast<std::size_t>(l);
    const TranscoderTensors& g = gradients[at];
    const std::int64_t length = shape_.targets(l) * C;
    DecodeBackwardTable(columns[at], entries_[at].value, length, {d_y_.data() + l * C, row},
                        {g.decoder, length});
    DecodeBackwardTable(columns[at], d_pre_[at], C, {batch.x[at], C}, {g.encoder, C});
    if (aux_entries_[at].size() == 0) continue;
    DecodeBackwardTable(aux_columns[at], aux_entries_[at].value, length,
                        {d_aux_.data() + l * C, row}, {g.decoder, length});
    DecodeBackwardTable(aux_columns[at], d_aux_pre_[at], C, {batch.x[at], kAuxEvery * C},
                        {g.encoder, C});
  }
}

TranscoderMeasure TranscoderStep::Totals() const {
  TranscoderMeasure m;
  const auto rows = static_cast<double>(rows_);
  for (std::size_t l = 0; l < entries_.size(); ++l) {
    double error = 0.0, power = 0.0;
    for (const Piece& piece : pieces_) {
      error += piece.error[l];
      power += piece.power[l];
    }
    m.loss += error / (rows * static_cast<double>(shape_.width * shape_.layers));
    m.unexplained.push_back(power > 0.0 ? error / power : 0.0);
    m.l0.push_back(static_cast<double>(entries_[l].size()) / rows);
  }
  for (const Piece& piece : pieces_) m.penalty += piece.penalty / rows;
  return m;
}

TranscoderMeasure TranscoderStep::Gradients(const TranscoderRows& batch,
                                            const std::vector<TranscoderTensors>& weights,
                                            const std::vector<TranscoderTensors>& gradients,
                                            float penalty_weight, const std::vector<char>& silent) {
  Check(batch.rows == rows_, "a step has as many rows as it was made for");
  backward_ = true;
  Prepare(batch, weights, silent);
  ParallelFor(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
    Piece& piece = pieces_[static_cast<std::size_t>(p)];
    EncodePiece(batch, weights, piece);
    DecodePiece(batch, weights, piece);
    ValuesPiece(weights, penalty_weight, piece);
    if (options_.aux > 0.0f) SilentPiece(weights, piece);
  });
  Collect();
  WeightGradients(batch, weights, gradients, penalty_weight);
  return Totals();
}

TranscoderMeasure TranscoderStep::Measure(const TranscoderRows& batch,
                                          const std::vector<TranscoderTensors>& weights,
                                          const std::vector<std::vector<float>>& thresholds) {
  Check(batch.rows == rows_, "a step has as many rows as it was made for");
  backward_ = false;
  threshold_ = thresholds;
  ParallelFor(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
    Piece& piece = pieces_[static_cast<std::size_t>(p)];
    piece.penalty = 0.0;
    EncodePiece(batch, weights, piece);
    DecodePiece(batch, weights, piece);
  });
  Collect();
  return Totals();
}

std::vector<float> TranscoderStep::QuantileThresholds(const TranscoderRows& batch,
                                                      const std::vector<TranscoderTensors>& weights,
                                                      std::int64_t layer, double share) {
  const std::int64_t C = shape_.width, F = shape_.features;
  const std::int64_t rows = std::min<std::int64_t>(rows_, 2048);
  Buffer<float> pre(rows * F);
  const auto at = static_cast<std::size_t>(layer);
  EncodeRows(rows, C, F, {batch.x[at], C}, weights[at], pre.data());
  const auto kept =
      std::clamp<std::int64_t>(std::llround(share * static_cast<double>(rows)), 1, rows);
  std::vector<float> thresholds(static_cast<std::size_t>(F));
  ParallelFor(F, [&](std::int64_t f) {
    std::vector<float> column(static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r) column[static_cast<std::size_t>(r)] = pre[r * F + f];
    std::nth_element(column.begin(), column.begin() + (kept - 1), column.end(), std::greater<>());
    thresholds[static_cast<std::size_t>(f)] =
        std::max(1e-3f, column[static_cast<std::size_t>(kept - 1)]);
  });
  return thresholds;
}

}  // namespace clearhead
