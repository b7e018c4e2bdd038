// SPDX-License-Identifier: MIT
#include "heads/correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/gemm.h"

namespace clearhead {
namespace {

// Weights that differ by no more than this are one value with rounding on it.
constexpr float kConstant = 1e-7f;

bool IsConstant(std::span<const float> values) {
  if (values.size() < 2) return true;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *high - *low <= kConstant;
}

double Mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::size_t Bin(float value, float largest) {
  const double share = largest > 0 ? value / largest : 0;
  return static_cast<std::size_t>(std::clamp(share * ScatterSection::kBins, 0.0,
                                             static_cast<double>(ScatterSection::kBins - 1)));
}

// For Correlate: mean 0, norm 1. False if that cannot be.
bool Standardise(std::span<float> values) {
  if (IsConstant(values)) return false;
  const double mean = Mean(values);
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double scale = 1 / std::sqrt(squares);
  for (float& value : values) value = static_cast<float>((value - mean) * scale);
  return true;
}

}  // namespace

PairWeights CollectPairs(const AttentionSource& source, std::size_t sequence,
                         const std::vector<HeadId>& heads) {
  const std::int64_t T = source.sequences.at(sequence).length;
  PairWeights result{.heads = heads, .length = T, .pairs = T * (T + 1) / 2 - 1};
  result.weights = Buffer<float>(static_cast<std::int64_t>(heads.size()) * result.pairs);
  source.visit(sequence, [&](std::int64_t layer, const float* weights) {
    ParallelFor(static_cast<std::int64_t>(heads.size()), [&](std::int64_t h) {
      const HeadId id = heads[static_cast<std::size_t>(h)];
      if (id.layer != layer) return;
      float* out = result.weights.data() + h * result.pairs;
      for (std::int64_t i = 1; i < T; ++i) {
        const float* row = weights + (id.head * T + i) * T;
        out = std::copy(row, row + i + 1, out);
      }
    });
  });
  return result;
}

std::optional<double> Pearson(std::span<const float> x, std::span<const float> y) {
  Check(x.size() == y.size(), "correlation of two samples of one size");
  if (IsConstant(x) || IsConstant(y)) return std::nullopt;
  const double mean_x = Mean(x), mean_y = Mean(y);
  double xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = x[i] - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

std::vector<float> Ranks(std::span<const float> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<float> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    const double shared = (static_cast<double>(first + 1) + static_cast<double>(end)) / 2;
    for (std::size_t i = first; i < end; ++i) ranks[order[i]] = static_cast<float>(shared);
    first = end;
  }
  return ranks;
}

std::optional<double> Spearman(std::span<const float> x, std::span<const float> y) {
  if (IsConstant(x) || IsConstant(y)) return std::nullopt;
  return Pearson(Ranks(x), Ranks(y));
}

ScatterSection Scatter(const PairWeights& pairs, std::string label) {
  constexpr int kBins = ScatterSection::kBins;
  const std::size_t n = pairs.heads.size();
  ScatterSection section{.label = std::move(label),
                         .heads = pairs.heads,
                         .length = pairs.length,
                         .pairs = pairs.pairs};
  section.largest.resize(n);
  section.histograms.resize(n);
  section.cells.resize(n * n);
  const bool binned = pairs.pairs > ScatterSection::kMaxPoints;
  if (!binned) section.points.resize(n);
  std::vector<std::vector<float>> ranks(n);
  ParallelFor(static_cast<std::int64_t>(n), [&](std::int64_t index) {
    const auto h = static_cast<std::size_t>(index);
    const std::span<const float> weights = pairs.Of(h);
    for (const float w : weights) section.largest[h] = std::max(section.largest[h], w);
    section.histograms[h].assign(kBins, 0);
    for (const float w : weights) ++section.histograms[h][Bin(w, section.largest[h])];
    if (!IsConstant(weights)) ranks[h] = Ranks(weights);
    if (!binned) section.points[h].assign(weights.begin(), weights.end());
  });
  ParallelFor(static_cast<std::int64_t>(n * n), [&](std::int64_t index) {
    const std::size_t y = static_cast<std::size_t>(index) / n;
    const std::size_t x = static_cast<std::size_t>(index) % n;
    ScatterCell& cell = section.cells[static_cast<std::size_t>(index)];
    const std::span<const float> of_x = pairs.Of(x), of_y = pairs.Of(y);
    cell.pearson = Pearson(of_x, of_y);
    if (cell.pearson) cell.spearman = Pearson(ranks[x], ranks[y]);
    if (!binned || x == y) return;
    cell.counts.assign(kBins * kBins, 0);
    for (std::size_t i = 0; i < of_x.size(); ++i) {
      ++cell.counts[Bin(of_y[i], section.largest[y]) * kBins + Bin(of_x[i], section.largest[x])];
    }
  });
  return section;
}

CorrelationMatrix Correlate(PairWeights* pairs, std::string label) {
  const std::size_t n = pairs->heads.size();
  CorrelationMatrix result{
      .label = std::move(label), .length = pairs->length, .pairs = pairs->pairs};
  std::vector<char> defined(n, 0);
  ParallelFor(static_cast<std::int64_t>(n), [&](std::int64_t h) {
    const std::span<float> weights = pairs->weights.span().subspan(
        static_cast<std::size_t>(h * pairs->pairs), static_cast<std::size_t>(pairs->pairs));
    defined[static_cast<std::size_t>(h)] = Standardise(weights) ? 1 : 0;
  });

  // Products of pieces in fp32, summed in double.
  constexpr std::int64_t kPiece = 4096;
  const auto rows = static_cast<std::int64_t>(n);
  std::vector<double> r(n * n, 0.0);
  std::vector<float> piece(n * n);
  for (std::int64_t first = 0; first < pairs->pairs; first += kPiece) {
    const std::int64_t count = std::min(kPiece, pairs->pairs - first);
    const float* data = pairs->weights.data() + first;
    Gemm({rows, rows, count}, {data, pairs->pairs}, {data, pairs->pairs, Op::kTranspose},
         piece.data(), rows, /*accumulate=*/false);
    for (std::size_t i = 0; i < r.size(); ++i) r[i] += piece[i];
  }
  for (std::size_t i = 0; i < n; ++i) r[i * n + i] = 1.0;

  std::vector<std::size_t> kept, constant;
  for (std::size_t h = 0; h < n; ++h) (defined[h] ? kept : constant).push_back(h);
  std::vector<double> similarity(kept.size() * kept.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    for (std::size_t j = 0; j < kept.size(); ++j) {
      similarity[i * kept.size() + j] = std::clamp(r[kept[i] * n + kept[j]], -1.0, 1.0);
    }
  }
  std::vector<std::size_t> order;
  for (const std::size_t i : ClusterOrder(similarity, kept.size())) order.push_back(kept[i]);
  order.insert(order.end(), constant.begin(), constant.end());

  result.defined_heads = static_cast<std::int64_t>(kept.size());
  result.r.resize(n * n);
  std::vector<double> magnitudes;
  for (std::size_t i = 0; i < n; ++i) {
    result.heads.push_back(pairs->heads[order[i]]);
    for (std::size_t j = 0; j < n; ++j) {
      if (!defined[order[i]] || !defined[order[j]]) continue;
      const double value = std::clamp(r[order[i] * n + order[j]], -1.0, 1.0);
      result.r[i * n + j] = value;
      if (j >= i) continue;
      magnitudes.push_back(std::abs(value));
      if (std::abs(value) > 0.5) result.share_above_half += 1;
      const auto [a, b] = std::minmax(pairs->heads[order[i]], pairs->heads[order[j]]);
      result.strongest.push_back({a, b, value});
    }
  }
  std::sort(result.strongest.begin(), result.strongest.end(),
            [](const CorrelatedPair& x, const CorrelatedPair& y) {
              if (std::abs(x.r) != std::abs(y.r)) return std::abs(x.r) > std::abs(y.r);
              return std::pair(x.a, x.b) < std::pair(y.a, y.b);
            });
  if (result.strongest.size() > CorrelationMatrix::kStrongest) {
    result.strongest.resize(CorrelationMatrix::kStrongest);
  }
  if (!magnitudes.empty()) {
    result.share_above_half /= static_cast<double>(magnitudes.size());
    std::sort(magnitudes.begin(), magnitudes.end());
    const std::size_t middle = magnitudes.size() / 2;
    result.median_magnitude = magnitudes.size() % 2 == 1
                                  ? magnitudes[middle]
                                  : (magnitudes[middle - 1] + magnitudes[middle]) / 2;
  }
  return result;
}

std::vector<std::size_t> ClusterOrder(std::span<const double> similarity, std::size_t n) {
  Check(similarity.size() == n * n, "similarities are [n, n]");
  if (n == 0) return {};
  std::vector<double> between(similarity.begin(), similarity.end());
  std::vector<std::vector<std::size_t>> clusters(n);
  for (std::size_t i = 0; i < n; ++i) clusters[i] = {i};
  std::vector<std::size_t> alive(n);
  std::iota(alive.begin(), alive.end(), std::size_t{0});
  while (alive.size() > 1) {
    std::size_t best_a = alive[0], best_b = alive[1];
    for (std::size_t x = 0; x < alive.size(); ++x) {
      for (std::size_t y = x + 1; y < alive.size(); ++y) {
        if (between[alive[x] * n + alive[y]] > between[best_a * n + best_b]) {
          best_a = alive[x];
          best_b = alive[y];
        }
      }
    }
    std::vector<std::size_t>&a = clusters[best_a], &b = clusters[best_b];
    const auto meet = [&](bool turn_a, bool turn_b) {
      const std::size_t end = turn_a ? a.front() : a.back();
      const std::size_t begin = turn_b ? b.back() : b.front();
      return similarity[end * n + begin];
    };
    bool turn_a = false, turn_b = false;
    for (const auto& [ta, tb] : {std::pair{true, false}, {false, true}, {true, true}}) {
      if (meet(ta, tb) > meet(turn_a, turn_b)) {
        turn_a = ta;
        turn_b = tb;
      }
    }
    const auto size_a = static_cast<double>(a.size()), size_b = static_cast<double>(b.size());
    for (const std::size_t other : alive) {
      if (other == best_a || other == best_b) continue;
      const double mean =
          (size_a * between[best_a * n + other] + size_b * between[best_b * n + other]) /
          (size_a + size_b);
      between[best_a * n + other] = between[other * n + best_a] = mean;
    }
    if (turn_a) std::reverse(a.begin(), a.end());
    if (turn_b) std::reverse(b.begin(), b.end());
    a.insert(a.end(), b.begin(), b.end());
    alive.erase(std::find(alive.begin(), alive.end(), best_b));
  }
  return clusters[alive[0]];
}

}  // namespace clearhead
