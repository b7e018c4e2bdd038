// SPDX-License-Identifier: MIT
#include "heads/head_report.h"

#include <algorithm>

#include "core/random.h"
#include "core/rank_sums.h"
#include "core/threads.h"

namespace clearhead {

ModelReport AnalyseHeads(const AttentionSource& source, const ReportProgress& progress,
                         Communicator* ranks) {
  Communicator alone;
  Communicator& all = ranks == nullptr ? alone : *ranks;
  const std::size_t sequences = source.sequences.size();
  ModelReport report{.label = source.label,
                     .layers = source.layers,
                     .heads_per_layer = source.heads,
                     .sequences = static_cast<std::int64_t>(sequences)};
  for (const AttentionSequence& sequence : source.sequences) {
    const std::int64_t T = sequence.length;
    report.tokens += T;
    report.input_hash = HashCoordinates(report.input_hash, {static_cast<std::uint64_t>(T)});
    for (const std::int32_t id : sequence.ids) {
      report.input_hash = HashCoordinates(report.input_hash, {static_cast<std::uint64_t>(id)});
    }
    report.longest = std::max(report.longest, T);
  }
  const std::int64_t heads = source.layers * source.heads;
  const auto of_head = static_cast<std::size_t>(HeadAccumulator::SumCount(report.longest));
  std::vector<double> peaks(static_cast<std::size_t>(heads));
  const auto add = [&](std::size_t s, std::span<double> sums) {
    const std::int64_t T = source.sequences[s].length;
    const std::vector<std::int64_t> copies = EarlierCopies(source.sequences[s].ids);
    source.visit(s, [&](std::int64_t layer, const float* weights) {
      ParallelFor(source.heads, [&](std::int64_t head) {
        HeadAccumulator one(static_cast<std::int64_t>(s));
        one.Add(weights + head * T * T, T, copies);
        const auto at = static_cast<std::size_t>(layer * source.heads + head);
        one.StoreSums(sums.subspan(at * of_head, of_head));
        peaks[at] = std::max(peaks[at], one.peak());
      });
    });
    if (progress) progress(s + 1, sequences);
  };
  const std::vector<double> sums = SumInOrder(all, std::vector<std::int64_t>(sequences, 1),
                                              heads * static_cast<std::int64_t>(of_head), add);
  std::vector<double> peaks_of_all(peaks.size() * static_cast<std::size_t>(all.size()));
  all.AllGather(peaks, peaks_of_all);
  for (std::size_t i = 0; i < peaks_of_all.size(); ++i) {
    double& peak = peaks[i % peaks.size()];
    peak = std::max(peak, peaks_of_all[i]);
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    HeadResult& result = report.heads.emplace_back();
    result.statistics =
        HeadAccumulator::FromSums(std::span(sums).subspan(at * of_head, of_head), peaks[at])
            .Finish({h / source.heads, h % source.heads});
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
