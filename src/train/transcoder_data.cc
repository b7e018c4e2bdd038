// SPDX-License-Identifier: MIT
#include "train/transcoder_data.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"
#include "model/hooks.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Windows that run together on one thread.
constexpr std::int64_t kGroupTokens = 1024;

// Copies what MLPs read and write to the places of the rows.
class MlpRows final : public Hooks {
 public:
  // place[w * length + t]: where the row of window w, position t goes; negative: nowhere.
  MlpRows(Tap reads, std::int64_t layers, const std::vector<LayerUnits>& units,
          std::vector<Buffer<float>>& x, Buffer<float>& y)
      : reads_(reads), layers_(layers), units_(units), x_(x), y_(y) {}

  std::vector<std::int64_t> place;

  bool Wants(TapId id) const override { return id.tap == reads_ || id.tap == Tap::kMlpOut; }

  void Visit(TapId id, const TensorView<float>& value) override {
    const std::int64_t C = value.shape[2];
    const auto layer = static_cast<std::size_t>(id.layer);
    for (std::size_t r = 0; r < place.size(); ++r) {
      if (place[r] < 0) continue;
      const float* from = value.data + static_cast<std::int64_t>(r) * C;
      if (id.tap == Tap::kMlpOut) {
        float* to = y_.data() + (place[r] * layers_ + id.layer) * C;
        if (units_.empty()) {
          std::copy(from, from + C, to);
          continue;
        }
        const float* mean = units_[layer].mean_out.data();
        const float factor = 1.0f / units_[layer].scale_out;
        for (std::int64_t c = 0; c < C; ++c) to[c] = (from[c] - mean[c]) * factor;
      } else {
        float* to = x_[layer].data() + place[r] * C;
        if (units_.empty()) {
          std::copy(from, from + C, to);
          continue;
        }
        const float *mean = units_[layer].mean_in.data(),
                    *deviation = units_[layer].deviation_in.data();
        for (std::int64_t c = 0; c < C; ++c) to[c] = (from[c] - mean[c]) / deviation[c];
      }
    }
  }

 private:
  Tap reads_;
  std::int64_t layers_;
  const std::vector<LayerUnits>& units_;
  std::vector<Buffer<float>>& x_;
  Buffer<float>& y_;
};

// Mean and variance of each column of rows[count, stride], from column 0 to C - 1.
void Moments(const float* rows, std::int64_t count, std::int64_t stride, std::int64_t C,
             std::vector<double>& mean, std::vector<double>& variance) {
  mean.assign(static_cast<std::size_t>(C), 0.0);
  variance.assign(static_cast<std::size_t>(C), 0.0);
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < C; ++c) mean[static_cast<std::size_t>(c)] += rows[r * stride + c];
  }
  for (double& m : mean) m /= static_cast<double>(count);
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < C; ++c) {
      const double d = rows[r * stride + c] - mean[static_cast<std::size_t>(c)];
      variance[static_cast<std::size_t>(c)] += d * d;
    }
  }
  for (double& v : variance) v /= static_cast<double>(count);
}

}  // namespace

TranscoderData::TranscoderData(const Model& model, std::span<const std::int32_t> tokens,
                               const TranscoderDataOptions& options)
    : model_(model),
      tokens_(tokens),
      options_(options),
      batches_(tokens, options.context, HashCoordinates(options.seed, {1}), options.starts) {
  if (options.context < 2 || options.context > model.config.positions) {
    Fail("windows of {} tokens were asked for; 2 to {} are possible with this model",
         options.context, model.config.positions);
  }
  for (std::int64_t l = 0; l < model.config.layers; ++l) {
    x_.emplace_back(block_rows() * model.config.width);
  }
  y_ = Buffer<float>(block_rows() * model.config.layers * model.config.width);
}

void TranscoderData::FillBlock(std::int64_t block) {
  if (block == block_) return;
  block_ = block;
  const std::int64_t T = options_.context, rows = block_rows();
  const std::int64_t windows = (rows + T - 2) / (T - 1);
  // Where each row goes: a permutation of the block's.
  std::vector<std::int64_t> place(static_cast<std::size_t>(rows));
  std::iota(place.begin(), place.end(), 0);
  RandomStream random(HashCoordinates(options_.seed, {3, static_cast<std::uint64_t>(block)}));
  for (std::size_t i = place.size(); i > 1; --i) std::swap(place[i - 1], place[random.Below(i)]);
  // Starts come from a state of their own (the order of an epoch): found before the threads begin.
  std::vector<std::int64_t> starts(static_cast<std::size_t>(windows));
  for (std::int64_t w = 0; w < windows; ++w) {
    starts[static_cast<std::size_t>(w)] = batches_.Start(block * windows + w);
  }
  const std::int64_t group = std::max<std::int64_t>(1, kGroupTokens / T);
  const std::int64_t groups = (windows + group - 1) / group;
  const std::optional<std::int32_t> begin = model_.config.begin_of_text;
  // A group runs on one thread whatever their number, so its bits do not depend on it.
  ParallelFor(groups, [&](std::int64_t g) {
    const std::int64_t first = g * group, count = std::min(group, windows - first);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count * T));
    MlpRows hooks(options_.reads, model_.config.layers, units_, x_, y_);
    hooks.place.assign(ids.size(), -1);
    for (std::int64_t w = 0; w < count; ++w) {
      const std::int32_t* from = tokens_.data() + starts[static_cast<std::size_t>(first + w)];
      const bool marked =
          begin && HashCoordinates(options_.seed,
                                   {4, static_cast<std::uint64_t>(block * windows + first + w)}) %
                           2 ==
                       0;
      std::int32_t* to = ids.data() + w * T;
      if (marked) *to = *begin;
      std::copy(from, from + T - (marked ? 1 : 0), to + (marked ? 1 : 0));
      for (std::int64_t t = 1; t < T; ++t) {
        const std::int64_t row = (first + w) * (T - 1) + t - 1;
        if (row < rows) hooks.place[static_cast<std::size_t>(w * T + t)] = place[row];
      }
    }
    Activations activations(model_.config, count, T, Keep::kNothing, 0);
    const Pass pass{.model = model_, .batch = count, .length = T, .hooks = &hooks};
    ForwardToFinalNorm(pass, ids.data(), activations);
  });
}

std::vector<LayerUnits> TranscoderData::MeasureUnits() {
  Check(units_.empty(), "units are measured on rows as the model has them");
  FillBlock(0);
  const std::int64_t C = model_.config.width, L = model_.config.layers, rows = block_rows();
  std::vector<LayerUnits> units(static_cast<std::size_t>(L));
  ParallelFor(L, [&](std::int64_t l) {
    LayerUnits& u = units[static_cast<std::size_t>(l)];
    std::vector<double> mean, variance;
    Moments(x_[static_cast<std::size_t>(l)].data(), rows, C, C, mean, variance);
    const double largest = *std::max_element(variance.begin(), variance.end());
    u.mean_in.assign(mean.begin(), mean.end());
    for (const double v : variance) {  // a dimension that stands still says nothing
      u.deviation_in.push_back(static_cast<float>(std::sqrt(std::max(v, largest * 1e-8 + 1e-30))));
    }
    Moments(y_.data() + l * C, rows, L * C, C, mean, variance);
    u.mean_out.assign(mean.begin(), mean.end());
    double sum = 0.0;
    for (const double v : variance) sum += v;
    u.scale_out = static_cast<float>(std::sqrt(std::max(sum / static_cast<double>(C), 1e-30)));
  });
  return units;
}

void TranscoderData::SetUnits(std::vector<LayerUnits> units) {
  units_ = std::move(units);
  block_ = -1;
}

TranscoderRows TranscoderData::Step(std::int64_t step) {
  FillBlock(step / options_.steps_at_once);
  const std::int64_t first = step % options_.steps_at_once * options_.rows;
  const std::int64_t C = model_.config.width;
  TranscoderRows rows{.rows = options_.rows};
  for (const Buffer<float>& x : x_) rows.x.push_back(x.data() + first * C);
  rows.y = y_.data() + first * model_.config.layers * C;
  return rows;
}

std::int64_t TranscoderData::BytesOf(const ModelConfig& config,
                                     const TranscoderDataOptions& options) {
  return options.rows * options.steps_at_once * config.layers * config.width * 2 *
         static_cast<std::int64_t>(sizeof(float));
}

}  // namespace clearhead
