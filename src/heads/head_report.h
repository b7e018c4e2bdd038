// SPDX-License-Identifier: MIT
// Statistics and names of all heads of a model, and the model as a whole.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/communicator.h"
#include "heads/attention_source.h"
#include "heads/head_names.h"
#include "heads/head_statistics.h"

namespace clearhead {

struct HeadResult {
  HeadStatistics statistics;
  HeadName name;
};

struct ModelSummary {
  double diagonal_dominant = 0;     // share of heads with more than half of their attention on the
                                    // diagonal
  double diagonal_intensity = 0;    // mean over heads of mean w(i,i)
  double peak_intensity = 0;        // mean over heads of the mean peak
  double sink_mass = 0;             // mean over heads of the attention to the first token
  double sink_heads = 0;            // share of heads whose first-token mass exceeds one half
  double open_edges_per_query = 0;  // mean over heads
  double edge_fraction = 0;
  std::array<std::int64_t, kHeadKinds> kinds{};  // heads of each kind
};

struct ModelReport {
  std::string label;
  std::int64_t layers = 0, heads_per_layer = 0;
  std::int64_t sequences = 0, tokens = 0;
  std::int64_t longest = 0;       // sequence, in tokens
  std::uint64_t input_hash = 0;   // of lengths and ids: equal inputs can be compared pairwise
  std::vector<HeadResult> heads;  // layer by layer
  ModelSummary summary;
};

using ReportProgress = std::function<void(std::size_t done, std::size_t sequences)>;

// Visits every sequence once; memory does not grow with their number. `ranks` share the sequences
// out and all get the report, which has the same bits for any number of them; null: one alone.
ModelReport AnalyseHeads(const AttentionSource& source, const ReportProgress& progress = {},
                         Communicator* ranks = nullptr);

ModelSummary Summarise(const std::vector<HeadResult>& heads);

// The heads of a report by HeadStatistics::importance, largest first.
std::vector<HeadId> ByImportance(const ModelReport& report);

}  // namespace clearhead
