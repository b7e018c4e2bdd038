// SPDX-License-Identifier: MIT
#include "heads/head_comparison.h"

#include <algorithm>
#include <functional>

#include "core/random.h"
#include "heads/permutation.h"

namespace clearhead {
namespace {

using Value = double (*)(const HeadStatistics&);
using BlockValue = double (*)(const HeadStatistics::Block&);

std::vector<double> Differences(std::span<const double> before, std::span<const double> after) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < before.size(); ++i) differences.push_back(after[i] - before[i]);
  return differences;
}

double MeanOf(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

ValueChange OfModels(const ModelReport& before, const ModelReport& after, bool paired, Value value,
                     std::uint64_t seed) {
  std::vector<double> a, b;
  for (const HeadResult& head : before.heads) a.push_back(value(head.statistics));
  for (const HeadResult& head : after.heads) b.push_back(value(head.statistics));
  return {MeanOf(a), MeanOf(b),
          paired ? SignFlipPValue(Differences(a, b), seed) : TwoSamplePValue(a, b, seed)};
}

ValueChange OfHeads(const HeadStatistics& before, const HeadStatistics& after, bool same_sequences,
                    Value value, BlockValue block_value, std::uint64_t seed) {
  ValueChange change{value(before), value(after), {}};
  if (!same_sequences) return change;
  std::vector<double> a, b;
  for (const HeadStatistics::Block& block : before.blocks) a.push_back(block_value(block));
  for (const HeadStatistics::Block& block : after.blocks) b.push_back(block_value(block));
  change.p = SignFlipPValue(Differences(a, b), seed);
  return change;
}

std::optional<double> PercentLost(double before, double after) {
  if (before <= 0) return std::nullopt;
  return 100.0 * (before - after) / before;
}

double Self(const HeadStatistics& s) { return s.self; }
double First(const HeadStatistics& s) { return s.first; }
double Peak(const HeadStatistics& s) { return s.mean_peak; }
double Edges(const HeadStatistics& s) { return s.open_edges_per_query; }
double Dominant(const HeadStatistics& s) { return s.diagonal_dominance > 0.5 ? 1.0 : 0.0; }

}  // namespace

ModelComparison CompareModels(const ModelReport& before, const ModelReport& after,
                              std::uint64_t seed) {
  ModelComparison result{.before = before.label, .after = after.label};
  result.paired = before.layers == after.layers && before.heads_per_layer == after.heads_per_layer;
  const auto models = [&](Value value, std::uint64_t which) {
    return OfModels(before, after, result.paired, value, HashCoordinates(seed, {which}));
  };
  result.diagonal_dominant = models(Dominant, 0);
  result.diagonal_intensity = models(Self, 1);
  result.peak_intensity = models(Peak, 2);
  result.sink_mass = models(First, 3);
  result.open_edges_per_query = models(Edges, 4);
  result.connections_removed =
      PercentLost(result.open_edges_per_query.before, result.open_edges_per_query.after);
  result.diagonal_intensity_lost =
      PercentLost(result.diagonal_intensity.before, result.diagonal_intensity.after);

  const bool same_sequences = before.input_hash == after.input_hash;
  const std::int64_t layers = std::min(before.layers, after.layers);
  const std::int64_t heads = std::min(before.heads_per_layer, after.heads_per_layer);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const HeadResult& a =
          before.heads[static_cast<std::size_t>(layer * before.heads_per_layer + head)];
      const HeadResult& b =
          after.heads[static_cast<std::size_t>(layer * after.heads_per_layer + head)];
      const auto change = [&](Value value, BlockValue block, std::uint64_t which) {
        const std::uint64_t key = HashCoordinates(
            seed, {which, static_cast<std::uint64_t>(layer), static_cast<std::uint64_t>(head)});
        return OfHeads(a.statistics, b.statistics, same_sequences, value, block, key);
      };
      using Block = HeadStatistics::Block;
      HeadChange entry{.head = {layer, head}, .before = a.name.kind, .after = b.name.kind};
      entry.self = change(
          Self, [](const Block& block) { return block.self; }, 10);
      entry.first = change(
          First, [](const Block& block) { return block.first; }, 11);
      entry.mean_peak = change(
          Peak, [](const Block& block) { return block.mean_peak; }, 12);
      entry.open_edges_per_query = change(
          Edges, [](const Block& block) { return block.open_edges_per_query; }, 13);
      const bool sink_before = entry.first.before > 0.5, sink_after = entry.first.after > 0.5;
      result.sinks_before += sink_before ? 1 : 0;
      result.sinks_after += sink_after ? 1 : 0;
      result.sinks_eliminated += sink_before && !sink_after ? 1 : 0;
      result.heads.push_back(entry);
    }
  }
  return result;
}

}  // namespace clearhead
