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

struct RowTable {
  float* data;
  std::int64_t stride;  // from row to row
};

// Copies what MLPs read and write to the places of the rows.
class MlpRows final : public Hooks {
 public:
  // place[w * length + t]: where the row of window w, position t goes; negative: nowhere.
  MlpRows(Tap reads, const std::vector<LayerUnits>& units, std::span<const RowTable> x,
          std::span<const RowTable> y)
      : reads_(reads), units_(units), x_(x), y_(y) {}

  std::vector<std::int64_t> place;

  bool Wants(TapId id) const override { return id.tap == reads_ || id.tap == Tap::kMlpOut; }

  void Visit(TapId id, const TensorView<float>& value) override {
    const std::int64_t C = value.shape[2];
    const auto layer = static_cast<std::size_t>(id.layer);
    for (std::size_t r = 0; r < place.size(); ++r) {
      if (place[r] < 0) continue;
      const float* from = value.data + static_cast<std::int64_t>(r) * C;
      if (id.tap == Tap::kMlpOut) {
        float* to = y_[layer].data + place[r] * y_[layer].stride;
        if (units_.empty()) {
          std::copy(from, from + C, to);
          continue;
        }
        const float* mean = units_[layer].mean_out.data();
        const float factor = 1.0f / units_[layer].scale_out;
        for (std::int64_t c = 0; c < C; ++c) to[c] = (from[c] - mean[c]) * factor;
      } else {
        float* to = x_[layer].data + place[r] * x_[layer].stride;
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
  const std::vector<LayerUnits>& units_;
  std::span<const RowTable> x_, y_;  // by layer
};

// Adds the columns of rows[count, stride], or the squares of their distances from `mean`, to
// sums[C].
void AddColumns(const float* rows, std::int64_t count, std::int64_t stride,
                std::span<const double> mean, std::span<double> sums) {
  const auto C = static_cast<std::int64_t>(sums.size());
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t c = 0; c < C; ++c) {
      const auto at = static_cast<std::size_t>(c);
      const double value = rows[r * stride + c];
      sums[at] += mean.empty() ? value : (value - mean[at]) * (value - mean[at]);
    }
  }
}

}  // namespace

// Shares begin at rows that silent features look at (every eighth).
RankRows RankRowsOf(std::int64_t total, const Communicator* ranks) {
  if (ranks == nullptr || ranks->alone()) return {0, total, total};
  constexpr std::int64_t kUnit = 8;
  const std::int64_t units = (total + kUnit - 1) / kUnit;
  if (units < ranks->size()) {
    Fail("a batch of {} tokens cannot be shared by {} ranks; give at least {} to each (--batch)",
         total, ranks->size(), kUnit);
  }
  const RankShare share = ranks->Share(units);
  const std::int64_t first = share.first * kUnit;
  return {first, std::min(total, share.last * kUnit) - first, total};
}

struct TranscoderData::Sink {
  std::vector<RowTable> x, y;  // by layer
};

TranscoderData::TranscoderData(const Model& model, std::span<const std::int32_t> tokens,
                               const TranscoderDataOptions& options, Communicator* ranks)
    : model_(model),
      tokens_(tokens),
      options_(options),
      ranks_(ranks),
      own_(RankRowsOf(options.rows, ranks)),
      batches_(tokens, options.context, HashCoordinates(options.seed, {1}), options.starts) {
  if (options.context < 2 || options.context > model.config.positions) {
    Fail("windows of {} tokens were asked for; 2 to {} are possible with this model",
         options.context, model.config.positions);
  }
  for (std::int64_t l = 0; l < model.config.layers; ++l) {
    x_.emplace_back(own_rows() * model.config.width);
  }
  y_ = Buffer<float>(own_rows() * model.config.layers * model.config.width);
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
  std::vector<Window> all(static_cast<std::size_t>(windows));
  for (std::int64_t w = 0; w < windows; ++w) {
    all[static_cast<std::size_t>(w)] = {w, batches_.Start(block * windows + w)};
  }
  if (ranks_ == nullptr || ranks_->alone()) return RunWindows(block, all, place, OwnRows());
  RunOnRanks(block, all, place);
}

TranscoderData::Sink TranscoderData::OwnRows() {
  const std::int64_t C = model_.config.width, L = model_.config.layers;
  Sink sink;
  for (std::int64_t l = 0; l < L; ++l) {
    sink.x.push_back({x_[static_cast<std::size_t>(l)].data(), C});
    sink.y.push_back({y_.data() + l * C, L * C});
  }
  return sink;
}

// Runs the model over windows of a block. place[row]: where the row goes, by its number in the
// block; negative: nowhere.
void TranscoderData::RunWindows(std::int64_t block, std::span<const Window> windows,
                                std::span<const std::int64_t> place, const Sink& sink) {
  const std::int64_t T = options_.context, rows = block_rows();
  const std::int64_t in_block = (rows + T - 2) / (T - 1);
  const auto count_all = static_cast<std::int64_t>(windows.size());
  const std::int64_t group = std::max<std::int64_t>(1, kGroupTokens / T);
  const std::int64_t groups = (count_all + group - 1) / group;
  const std::optional<std::int32_t> begin = model_.config.begin_of_text;
  // A group runs on one thread whatever their number, so its bits do not depend on it.
  ParallelFor(groups, [&](std::int64_t g) {
    const std::int64_t first = g * group, count = std::min(group, count_all - first);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(count * T));
    MlpRows hooks(options_.reads, units_, sink.x, sink.y);
    hooks.place.assign(ids.size(), -1);
    for (std::int64_t w = 0; w < count; ++w) {
      const Window& window = windows[static_cast<std::size_t>(first + w)];
      const std::int32_t* from = tokens_.data() + window.start;
      const auto sample = static_cast<std::uint64_t>(block * in_block + window.number);
      const bool marked = begin && HashCoordinates(options_.seed, {4, sample}) % 2 == 0;
      std::int32_t* to = ids.data() + w * T;
      if (marked) *to = *begin;
      std::copy(from, from + T - (marked ? 1 : 0), to + (marked ? 1 : 0));
      for (std::int64_t t = 1; t < T; ++t) {
        const std::int64_t row = window.number * (T - 1) + t - 1;
        if (row < rows) hooks.place[static_cast<std::size_t>(w * T + t)] = place[row];
      }
    }
    Activations activations(model_.config, count, T, Keep::kNothing, 0);
    const Pass pass{.model = model_, .batch = count, .length = T, .hooks = &hooks};
    ForwardToFinalNorm(pass, ids.data(), activations);
  });
}

// Every rank runs its share of the windows and sends each row to the rank whose it is, step by
// step. Everybody knows where every row goes, so only values travel.
void TranscoderData::RunOnRanks(std::int64_t block, std::span<const Window> windows,
                                std::span<const std::int64_t> place) {
  const std::int64_t T = options_.context, C = model_.config.width, L = model_.config.layers;
  const std::int64_t rows = block_rows(), row_size = 2 * L * C;
  const int N = ranks_->size();
  const auto at = [](auto i) { return static_cast<std::size_t>(i); };
  std::vector<std::int64_t> share_end(at(N));
  for (int r = 0; r < N; ++r) {
    share_end[at(r)] = std::min(options_.rows, ranks_->Share((options_.rows + 7) / 8, r).last * 8);
  }
  // Rows by (maker, step, owner), in the order of the block.
  const auto line = [&](int maker, std::int64_t step, int owner) {
    return at((maker * options_.steps_at_once + step) * N + owner);
  };
  std::vector<std::vector<std::int64_t>> lines(at(N * options_.steps_at_once * N));
  for (int maker = 0; maker < N; ++maker) {
    const RankShare share = ranks_->Share(static_cast<std::int64_t>(windows.size()), maker);
    const std::int64_t end = std::min(rows, share.last * (T - 1));
    for (std::int64_t row = share.first * (T - 1); row < end; ++row) {
      const std::int64_t step = place[at(row)] / options_.rows, i = place[at(row)] % options_.rows;
      const int owner = static_cast<int>(std::upper_bound(share_end.begin(), share_end.end(), i) -
                                         share_end.begin());
      lines[line(maker, step, owner)].push_back(row);
    }
  }
  const RankShare mine = ranks_->Share(static_cast<std::int64_t>(windows.size()));
  std::vector<std::int64_t> slot(at(rows), -1);
  std::int64_t made = 0, most_received = 0;
  for (std::int64_t s = 0; s < options_.steps_at_once; ++s) {
    std::int64_t received = 0;
    for (int r = 0; r < N; ++r) {
      for (const std::int64_t row : lines[line(ranks_->rank(), s, r)]) slot[at(row)] = made++;
      received += static_cast<std::int64_t>(lines[line(r, s, ranks_->rank())].size());
    }
    most_received = std::max(most_received, received);
  }
  if (made_.size() < made * row_size) made_ = Buffer<float>(made * row_size);
  if (received_.size() < most_received * row_size) {
    received_ = Buffer<float>(most_received * row_size);
  }
  Sink sink;
  for (std::int64_t l = 0; l < L; ++l) {
    sink.x.push_back({made_.data() + l * C, row_size});
    sink.y.push_back({made_.data() + (L + l) * C, row_size});
  }
  RunWindows(block, windows.subspan(at(mine.first), at(mine.size())), slot, sink);

  const float* sent = made_.data();
  for (std::int64_t s = 0; s < options_.steps_at_once; ++s) {
    std::vector<std::span<const std::byte>> to;
    std::vector<std::span<std::byte>> from;
    float* place_of = received_.data();
    for (int r = 0; r < N; ++r) {
      const std::size_t out = lines[line(ranks_->rank(), s, r)].size() * at(row_size);
      const std::size_t in = lines[line(r, s, ranks_->rank())].size() * at(row_size);
      to.push_back(std::as_bytes(std::span(sent, out)));
      from.push_back(std::as_writable_bytes(std::span(place_of, in)));
      sent += out;
      place_of += in;
    }
    ranks_->Exchange(to, from);
    const float* row_values = received_.data();
    for (int r = 0; r < N; ++r) {
      for (const std::int64_t row : lines[line(r, s, ranks_->rank())]) {
        const std::int64_t own = s * own_.rows + place[at(row)] % options_.rows - own_.first;
        for (std::int64_t l = 0; l < L; ++l) {
          std::copy_n(row_values + l * C, C, x_[at(l)].data() + own * C);
        }
        std::copy_n(row_values + L * C, L * C, y_.data() + own * L * C);
        row_values += row_size;
      }
    }
  }
}

std::vector<LayerUnits> TranscoderData::MeasureUnits() {
  Check(units_.empty(), "units are measured on rows as the model has them");
  FillBlock(0);
  const std::int64_t C = model_.config.width, L = model_.config.layers;
  // Of each layer C columns of x, then C of y.
  std::vector<double> mean(static_cast<std::size_t>(2 * L * C)), variance(mean.size());
  const auto columns = [&](std::vector<double>& of, std::int64_t l, bool y) {
    return std::span(of).subspan(static_cast<std::size_t>((2 * l + (y ? 1 : 0)) * C),
                                 static_cast<std::size_t>(C));
  };
  const auto average = [&](std::vector<double>& of, bool distances) {
    ParallelFor(L, [&](std::int64_t l) {
      for (const bool y : {false, true}) {
        const float* rows = y ? y_.data() + l * C : x_[static_cast<std::size_t>(l)].data();
        AddColumns(rows, own_rows(), y ? L * C : C,
                   distances ? columns(mean, l, y) : std::span<const double>(), columns(of, l, y));
      }
    });
    if (ranks_ != nullptr) ranks_->Sum(of);
    for (double& value : of) value /= static_cast<double>(block_rows());
  };
  average(mean, false);
  average(variance, true);
  std::vector<LayerUnits> units(static_cast<std::size_t>(L));
  for (std::int64_t l = 0; l < L; ++l) {
    LayerUnits& u = units[static_cast<std::size_t>(l)];
    const std::span<double> in = columns(variance, l, false), out = columns(variance, l, true);
    const std::span<double> mean_in = columns(mean, l, false), mean_out = columns(mean, l, true);
    const double largest = *std::max_element(in.begin(), in.end());
    u.mean_in.assign(mean_in.begin(), mean_in.end());
    for (const double v : in) {  // a dimension that stands still says nothing
      u.deviation_in.push_back(static_cast<float>(std::sqrt(std::max(v, largest * 1e-8 + 1e-30))));
    }
    u.mean_out.assign(mean_out.begin(), mean_out.end());
    double sum = 0.0;
    for (const double v : out) sum += v;
    u.scale_out = static_cast<float>(std::sqrt(std::max(sum / static_cast<double>(C), 1e-30)));
  }
  return units;
}

void TranscoderData::SetUnits(std::vector<LayerUnits> units) {
  units_ = std::move(units);
  block_ = -1;
}

TranscoderRows TranscoderData::Step(std::int64_t step) {
  FillBlock(step / options_.steps_at_once);
  const std::int64_t first = step % options_.steps_at_once * own_.rows;
  const std::int64_t C = model_.config.width;
  TranscoderRows rows{.rows = own_.rows};
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
