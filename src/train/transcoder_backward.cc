// SPDX-License-Identifier: MIT
// The backward of transcoder_step: weights' gradients feature by feature. A feature's decoder row,
// its encoder row and their gradients stay in the cache while the rows where it fired are gathered
// once, for its activations' gradient and for its weights' alike.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "train/transcoder_piece.h"

namespace clearhead {
namespace {
constexpr std::int64_t kFeaturesOfAShare = 16;
constexpr std::int64_t kEntriesAtOnce = 32;  // 32 rows of 6 layers of width 256: 192 kB

// What a feature's gradient is made of: where it fired (or nearly did) and the tables it gathers.
struct Firings {
  const SparseRows& entries;
  const SparseColumns& columns;
  TableOf<const float> d_y, x;
};

// One feature's own pieces of the weights and gradients.
struct FeatureRows {
  std::int64_t written;  // length of the decoder row
  const float* decoder;
  float *d_decoder, *d_encoder, *d_bias;
};

// Adds what `rows` with dL/dpre `d_pre` make of the encoder's gradients.
void AddEncoderGradients(std::span<const std::int32_t> rows, const float* d_pre, std::int64_t width,
                         const Firings& firings, const FeatureRows& feature) {
  AddScaledRows(rows, d_pre, width, firings.x, feature.d_encoder);
  for (std::size_t i = 0; i < rows.size(); ++i) *feature.d_bias += d_pre[i];
}

// For a feature's entries, a cacheful at a time: adds to the decoder's gradient what those above
// `theta` make of it, then calls `use(rows, values, d_values)`.
template <typename Use>
void ForEntries(const Firings& firings, std::int64_t f, const FeatureRows& feature, float theta,
                const Use& use) {
  std::array<float, kEntriesAtOnce> value, fired, d_value;
  const std::int64_t end = firings.columns.begin[f + 1];
  for (std::int64_t i = firings.columns.begin[f]; i < end; i += kEntriesAtOnce) {
    const std::int64_t count = std::min(kEntriesAtOnce, end - i);
    const std::span rows(firings.columns.row.data() + i, static_cast<std::size_t>(count));
    for (std::int64_t e = 0; e < count; ++e) {
      value[e] = firings.entries.value[firings.columns.entry[i + e]];
      fired[e] = value[e] <= theta ? 0.0f : value[e];
    }
    DotsAndSums(rows, feature.written, feature.decoder, fired.data(), firings.d_y, d_value.data(),
                feature.d_decoder);
    use(rows, value.data(), d_value.data());
  }
}

}  // namespace

// JumpReLU: entries are those above the rectangle's lower end. With n = |W_dec| and t = tanh(4 a n)
// the penalty adds c 4 n (1 - t^2) to d_pre and c 4 a (1 - t^2) to d n of every feature that fires.
double TranscoderStep::ThresholdedFeature(std::int64_t layer, std::int64_t f,
                                          const SparseColumns& columns, const TranscoderRows& batch,
                                          const TranscoderTensors& w, const TranscoderTensors& g,
                                          float c) const {
  const std::int64_t C = shape_.width, row = shape_.layers * C, length = shape_.targets(layer) * C;
  const auto at = static_cast<std::size_t>(layer);
  const float theta = threshold_[at][static_cast<std::size_t>(f)];
  const float n = norm_[at][static_cast<std::size_t>(f)];
  const Firings firings{
      near_entries_[at], columns, {d_y_.data() + layer * C, row}, {batch.x[at], C}};
  const FeatureRows feature{length, w.decoder + f * length, g.decoder + f * length,
                            g.encoder + f * C, g.encoder_bias + f};
  double penalty = 0.0, d_theta = 0.0;
  float d_norm = 0.0f;
  const float at_theta = c * std::tanh(kSlope * theta * n);
  ForEntries(firings, f, feature, theta,
             [&](std::span<const std::int32_t> rows, const float* value, const float* d_value) {
               std::array<std::int32_t, kEntriesAtOnce> fired;
               std::array<float, kEntriesAtOnce> d_pre;
               std::size_t count = 0;
               for (std::size_t e = 0; e < rows.size(); ++e) {
                 if (value[e] > theta) {
                   const float t = std::tanh(kSlope * value[e] * n), slope = kSlope * (1 - t * t);
                   penalty += t;
                   d_norm += c * value[e] * slope;
                   fired[count] = rows[e];
                   d_pre[count++] = d_value[e] + c * n * slope;
                 }
                 if (value[e] > theta + 0.5f * kRectangle) continue;
                 d_theta -= (theta * d_value[e] + at_theta) / kRectangle;
               }
               AddEncoderGradients({fired.data(), count}, d_pre.data(), C, firings, feature);
             });
  g.threshold[f] += static_cast<float>(d_theta * theta * kThresholdRate);
  if (n > 0.0f && d_norm != 0.0f) {
    const std::int32_t self = 0;
    const float factor = d_norm / n;
    AddScaledRows({&self, 1}, &factor, length, {feature.decoder, length}, feature.d_decoder);
  }
  return penalty;
}

void TranscoderStep::WeightGradients(const TranscoderRows& batch,
                                     const std::vector<TranscoderTensors>& weights,
                                     const std::vector<TranscoderTensors>& gradients,
                                     float penalty_weight) {
  const std::int64_t C = shape_.width, F = shape_.features, L = shape_.layers, row = L * C;
  const bool jump = options_.rule == FiringRule::kJumpRelu;
  std::vector<SparseColumns> columns(entries_.size()), aux_columns(entries_.size());
  ParallelFor(L, [&](std::int64_t l) {
    const auto at = static_cast<std::size_t>(l);
    ByColumn(jump ? near_entries_[at] : entries_[at], F, columns[at]);
    ByColumn(aux_entries_[at], F, aux_columns[at]);
    for (std::int64_t r = 0; r < rows_; ++r) {
      const float* d_y = d_y_.data() + r * row + l * C;
      for (std::int64_t c = 0; c < C; ++c) gradients[at].decoder_bias[c] += d_y[c];
    }
  });
  const auto plain = [&](const Firings& firings, std::int64_t f, const FeatureRows& feature) {
    ForEntries(firings, f, feature, -std::numeric_limits<float>::infinity(),
               [&](std::span<const std::int32_t> rows, const float*, const float* d_value) {
                 AddEncoderGradients(rows, d_value, C, firings, feature);
               });
  };
  const float c = penalty_weight / static_cast<float>(own_.total);
  const std::int64_t shares = (F + kFeaturesOfAShare - 1) / kFeaturesOfAShare;
  std::vector<double> penalty(static_cast<std::size_t>(L * shares));
  ParallelFor(L * shares, [&](std::int64_t share) {
    const std::int64_t l = share / shares, first = share % shares * kFeaturesOfAShare;
    const auto at = static_cast<std::size_t>(l);
    const TranscoderTensors &w = weights[at], &g = gradients[at];
    const std::int64_t length = shape_.targets(l) * C;
    for (std::int64_t f = first; f < std::min(F, first + kFeaturesOfAShare); ++f) {
      const FeatureRows feature{length, w.decoder + f * length, g.decoder + f * length,
                                g.encoder + f * C, g.encoder_bias + f};
      if (jump) {
        penalty[static_cast<std::size_t>(share)] +=
            ThresholdedFeature(l, f, columns[at], batch, w, g, c);
      } else {
        plain({entries_[at], columns[at], {d_y_.data() + l * C, row}, {batch.x[at], C}}, f,
              feature);
      }
      if (aux_entries_[at].size() == 0) continue;
      // Rows of silent features lie at every eighth row of the batch.
      plain({aux_entries_[at],
             aux_columns[at],
             {d_aux_.data() + l * C, row},
             {batch.x[at], kAuxEvery * C}},
            f, feature);
    }
  });
  penalty_ = 0.0;
  for (const double part : penalty) penalty_ += part;
}

}  // namespace clearhead
