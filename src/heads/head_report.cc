// SPDX-License-Identifier: MIT
#include "heads/head_report.h"

#include <algorithm>

#include "core/random.h"
#include "core/threads.h"

namespace clearhead {

ModelReport AnalyseHeads(const AttentionSource& source, const ReportProgress& progress) {
  ModelReport report{.label = source.label,
                     .layers = source.layers,
                     .heads_per_layer = source.heads,
                     .sequences = static_cast<std::int64_t>(source.sequences.size())};
  std::vector<HeadAccumulator> sums(static_cast<std::size_t>(source.layers * source.heads));
  for (std::size_t s = 0; s < source.sequences.size(); ++s) {
    const AttentionSequence& sequence = source.sequences[s];
    const std::int64_t T = sequence.length;
    const std::vector<std::int64_t> copies = EarlierCopies(sequence.ids);
    source.visit(s, [&](std::int64_t layer, const float* weights) {
      ParallelFor(source.heads, [&](std::int64_t head) {
        sums[static_cast<std::size_t>(layer * source.heads + head)].Add(weights + head * T * T, T,
                                                                        copies);
      });
    });
    report.tokens += T;
    report.input_hash = HashCoordinates(report.input_hash, {static_cast<std::uint64_t>(T)});
    for (const std::int32_t id : sequence.ids) {
      report.input_hash = HashCoordinates(report.input_hash, {static_cast<std::uint64_t>(id)});
    }
    report.longest = std::max(report.longest, T);
    if (progress) progress(s + 1, source.sequences.size());
  }
  for (std::int64_t h = 0; h < source.layers * source.heads; ++h) {
    HeadResult& result = report.heads.emplace_back();
    result.statistics =
        sums[static_cast<std::size_t>(h)].Finish({h / source.heads, h % source.heads});
    result.name = NameHead(result.statistics);
  }
  report.summary = Summarise(report.heads);
  return report;
}

ModelSummary Summarise(const std::vector<HeadResult>& heads) {
  ModelSummary summary;
  for (const HeadResult& head : heads) {
    const HeadStatistics& s = head.statistics;
    summary.diagonal_dominant += s.diagonal_dominance > 0.5 ? 1.0 : 0.0;
    summary.diagonal_intensity += s.self;
    summary.peak_intensity += s.mean_peak;
    summary.sink_mass += s.first;
    summary.sink_heads += s.first > 0.5 ? 1.0 : 0.0;
    summary.open_edges_per_query += s.open_edges_per_query;
    summary.edge_fraction += s.edge_fraction;
    ++summary.kinds[static_cast<std::size_t>(head.name.kind)];
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, heads.size()));
  for (double* value : {&summary.diagonal_dominant, &summary.diagonal_intensity,
                        &summary.peak_intensity, &summary.sink_mass, &summary.sink_heads,
                        &summary.open_edges_per_query, &summary.edge_fraction}) {
    *value /= count;
  }
  return summary;
}

std::vector<HeadId> ByImportance(const ModelReport& report) {
  std::vector<const HeadStatistics*> ranked;
  for (const HeadResult& head : report.heads) ranked.push_back(&head.statistics);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const HeadStatistics* a, const HeadStatistics* b) {
                     return a->importance > b->importance;
                   });
  std::vector<HeadId> ids;
  for (const HeadStatistics* statistics : ranked) ids.push_back(statistics->head);
  return ids;
}

}  // namespace clearhead
