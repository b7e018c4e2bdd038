// SPDX-License-Identifier: MIT
#include "train/transcoder_step.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>

#include "core/threads.h"
#include "train/transcoder_piece.h"

namespace clearhead {
namespace {

// |row| of every row of a table [count, length].
void RowNorms(std::int64_t count, std::int64_t length, const float* table,
              std::vector<float>& norms) {
  for (std::int64_t f = 0; f < count; ++f) {
    const std::int32_t self = 0;
    float square = 0.0f;
    DotsWithRows({&self, 1}, length, table + f * length, {table + f * length, length}, &square);
    norms[static_cast<std::size_t>(f)] = std::sqrt(square);
  }
}

// The `rank`-th largest value. Few values lie above `guess`; if it was too high, all are looked at.
float LargestOf(const Buffer<float>& values, std::int64_t rank, float guess) {
  std::vector<float> above;
  std::copy_if(values.begin(), values.end(), std::back_inserter(above),
               [guess](float v) { return v > guess; });
  if (static_cast<std::int64_t>(above.size()) < rank) above.assign(values.begin(), values.end());
  std::nth_element(above.begin(), above.begin() + (rank - 1), above.end(), std::greater<>());
  return above[static_cast<std::size_t>(rank - 1)];
}

}  // namespace

TranscoderStep::~TranscoderStep() = default;

TranscoderStep::TranscoderStep(const TranscoderShape& shape, const TranscoderStepOptions& options,
                               std::int64_t total_rows, Communicator* ranks)
    : shape_(shape),
      options_(options),
      ranks_(ranks),
      own_(RankRowsOf(total_rows, ranks)),
      rows_(own_.rows),
      d_y_(own_.rows * shape.layers * shape.width) {
  const std::int64_t rows = rows_;
  const auto L = static_cast<std::size_t>(shape.layers);
  if (options.aux > 0.0f) {
    d_aux_ = Buffer<float>((rows + kAuxEvery - 1) / kAuxEvery * shape.layers * shape.width);
  }
  threshold_.assign(L, std::vector<float>(static_cast<std::size_t>(shape.features), 0.0f));
  if (options.rule == FiringRule::kJumpRelu) norm_ = threshold_;
  encoder_.resize(L);
  silent_.resize(L);
  batch_thresholds_.assign(L, 0.0f);
  entries_.resize(L);
  near_entries_.resize(L);
  aux_entries_.resize(L);
  for (std::int64_t first = 0; first < rows; first += kPieceRows) {
    Piece& piece = pieces_.emplace_back();
    piece.first = first;
    piece.rows = std::min(kPieceRows, rows - first);
    piece.fired.resize(L);
    piece.near.resize(L);
    piece.aux.resize(L);
    piece.limit.resize(static_cast<std::size_t>(shape.features));
    piece.error.resize(L);
    piece.power.resize(L);
  }
}

// Every piece multiplies with the same encoders: packed once for all.
void TranscoderStep::PackEncoders(const std::vector<TranscoderTensors>& weights) {
  for (std::size_t l = 0; l < encoder_.size(); ++l) {
    encoder_[l].Pack({Weight(weights[l].encoder), shape_.width, Op::kTranspose}, shape_.width,
                     shape_.features);
  }
}

std::vector<Buffer<float>> TranscoderStep::GatherInputs(
    const TranscoderRows& batch, std::span<const std::int64_t> chosen) const {
  const std::int64_t C = shape_.width, L = shape_.layers;
  const auto count = static_cast<std::int64_t>(chosen.size());
  // Every rank's rows lie together, as chosen rows ascend: [row, layer, C].
  Buffer<float> all(count * L * C);
  std::int64_t at = 0;
  std::vector<std::span<std::byte>> from;
  std::span<const std::byte> mine;
  const int ranks = ranks_ == nullptr ? 1 : ranks_->size();
  for (int r = 0; r < ranks; ++r) {
    const std::int64_t end =
        ranks == 1 ? own_.total
                   : std::min(own_.total, ranks_->Share((own_.total + 7) / 8, r).last * 8);
    const std::int64_t begin = at;
    while (at < count && chosen[static_cast<std::size_t>(at)] < end) {
      const std::int64_t row = chosen[static_cast<std::size_t>(at)] - own_.first;
      for (std::int64_t l = 0; l < L && row >= 0 && row < rows_; ++l) {
        std::copy_n(batch.x[static_cast<std::size_t>(l)] + row * C, C,
                    all.data() + (at * L + l) * C);
      }
      ++at;
    }
    const std::span part = all.span().subspan(static_cast<std::size_t>(begin * L * C),
                                              static_cast<std::size_t>((at - begin) * L * C));
    from.push_back(std::as_writable_bytes(part));
    if (ranks_ == nullptr || r == ranks_->rank()) mine = std::as_bytes(part);
  }
  if (ranks > 1) {
    const std::vector<std::span<const std::byte>> to(static_cast<std::size_t>(ranks), mine);
    ranks_->Exchange(to, from);
  }
  std::vector<Buffer<float>> x;
  for (std::int64_t l = 0; l < L; ++l) {
    Buffer<float>& layer = x.emplace_back(count * C);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(all.data() + (i * L + l) * C, C, layer.data() + i * C);
    }
  }
  return x;
}

// Thresholds of this batch, and what else is the same for all rows.
void TranscoderStep::Prepare(const TranscoderRows& batch,
                             const std::vector<TranscoderTensors>& weights,
                             const std::vector<char>& silent) {
  const std::int64_t C = shape_.width, F = shape_.features;
  PackEncoders(weights);
  const std::int64_t sampled = std::min(kSampledRows, own_.total);
  std::vector<Buffer<float>> samples;
  if (options_.rule == FiringRule::kBatchTopK) {
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(sampled));
    for (std::int64_t i = 0; i < sampled; ++i) {
      chosen[static_cast<std::size_t>(i)] = i * (own_.total / sampled);
    }
    samples = GatherInputs(batch, chosen);
  }
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
      Buffer<float> pre(sampled * F);
      EncodeRows(sampled, {samples[at].data(), C}, encoder_[at], pre.data());
      AddBias(sampled, F, weights[at], pre.data());
      const auto kept = std::clamp<std::int64_t>(
          std::llround(options_.l0 * static_cast<double>(sampled)), 1, pre.size());
      batch_thresholds_[at] = std::max(0.0f, LargestOf(pre, kept, 0.5f * batch_thresholds_[at]));
      std::fill(threshold.begin(), threshold.end(), batch_thresholds_[at]);
    } else if (options_.rule == FiringRule::kJumpRelu) {
      for (std::int64_t f = 0; f < F; ++f) {
        threshold[static_cast<std::size_t>(f)] =
            std::exp(kThresholdRate * weights[at].threshold[f]);
      }
      RowNorms(F, shape_.targets(l) * C, weights[at].decoder, norm_[at]);
    }
  });
}

// The pieces' entries one after the other.
void TranscoderStep::Collect() {
  ParallelFor(shape_.layers, [&](std::int64_t l) {
    const auto at = static_cast<std::size_t>(l);
    Clear(entries_[at]);
    Clear(near_entries_[at]);
    Clear(aux_entries_[at]);
    for (const Piece& piece : pieces_) {
      AppendRows(piece.fired[at], entries_[at]);
      if (!backward_) continue;
      AppendRows(piece.near[at], near_entries_[at]);
      AppendRows(piece.aux[at], aux_entries_[at]);
    }
  });
}

TranscoderMeasure TranscoderStep::Totals() const {
  TranscoderMeasure m;
  const auto rows = static_cast<double>(own_.total);
  std::vector<double> sums(3 * entries_.size() + 1);  // by layer: error, power, entries; penalty
  for (std::size_t l = 0; l < entries_.size(); ++l) {
    for (const Piece& piece : pieces_) {
      sums[3 * l] += piece.error[l];
      sums[3 * l + 1] += piece.power[l];
    }
    sums[3 * l + 2] = static_cast<double>(entries_[l].size());
  }
  sums.back() = penalty_;
  if (ranks_ != nullptr) ranks_->Sum(sums);
  for (std::size_t l = 0; l < entries_.size(); ++l) {
    const double error = sums[3 * l], power = sums[3 * l + 1];
    m.loss += error / (rows * static_cast<double>(shape_.width * shape_.layers));
    m.unexplained.push_back(power > 0.0 ? error / power : 0.0);
    m.l0.push_back(sums[3 * l + 2] / rows);
  }
  m.penalty = sums.back() / rows;
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
    EncodePiece(batch, weights, pieces_[static_cast<std::size_t>(p)]);
  });
  Decode(weights);
  ParallelFor(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
    Piece& piece = pieces_[static_cast<std::size_t>(p)];
    ErrorsOfPiece(batch, piece);
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
  penalty_ = 0.0;
  threshold_ = thresholds;
  PackEncoders(weights);
  ParallelFor(static_cast<std::int64_t>(pieces_.size()), [&](std::int64_t p) {
    EncodePiece(batch, weights, pieces_[static_cast<std::size_t>(p)]);
  });
  Decode(weights);
  ParallelFor(static_cast<std::int64_t>(pieces_.size()),
              [&](std::int64_t p) { ErrorsOfPiece(batch, pieces_[static_cast<std::size_t>(p)]); });
  Collect();
  return Totals();
}

std::vector<float> TranscoderStep::QuantileThresholds(const TranscoderRows& batch,
                                                      const std::vector<TranscoderTensors>& weights,
                                                      std::int64_t layer, double share) {
  const std::int64_t C = shape_.width, F = shape_.features;
  const std::int64_t rows = std::min<std::int64_t>(own_.total, 2048);
  std::vector<std::int64_t> chosen(static_cast<std::size_t>(rows));
  std::iota(chosen.begin(), chosen.end(), 0);
  Buffer<float> pre(rows * F);
  const auto at = static_cast<std::size_t>(layer);
  PackedPanels encoder;
  encoder.Pack({Weight(weights[at].encoder), C, Op::kTranspose}, C, F);
  const std::vector<Buffer<float>> x = GatherInputs(batch, chosen);
  EncodeRows(rows, {x[at].data(), C}, encoder, pre.data());
  AddBias(rows, F, weights[at], pre.data());
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
