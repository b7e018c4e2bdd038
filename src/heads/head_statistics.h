// SPDX-License-Identifier: MIT
// What a head does, in numbers, over one sequence or a whole text.
//
// Conventions. A weight is w(i,j), query i, key j <= i; m(i) is the sum of row i (1 in a dense
// model, less where gates are closed). Query 0 can attend to nothing but itself, so averages over
// queries take the choosing queries i >= 1, unless said otherwise. A row without attention is
// empty: it counts in averages of weights (as 0) and is left out of averages over rows' shapes.
// Every value is a ratio of sums over all sequences, so a text equals the average over its
// sequences, weighted by what the value averages over (queries, rows, attention). A ratio with
// nothing below it is 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heads/head_id.h"

namespace clearhead {

// Attention to targets, TransformerLens's head scores: the previous token; earlier copies of the
// query's token (duplicate); the keys just after such copies (induction). All queries count here.
struct TargetScore {
  std::int64_t queries = 0;  // that have a target
  double mass = 0;           // their mean attention to their targets
  double share = 0;          // "mul": attention on targets / all attention
  double closeness = 0;      // "abs": 1 - mean over queries of sum over keys |w - target|
};

// How much of the attention a pattern explains. A head that spreads part of its attention evenly
// hits every pattern by chance with that part; it is taken off.
struct Evidence {
  double on = 0;      // attention on the pattern
  double chance = 0;  // what uniform rows of the same sums would put there
  double all = 0;     // attention of the rows in which the pattern has a place
  // `spread`: the share of the attention that is spread evenly.
  double Score(double spread) const {
    const double beyond = on - spread * chance;
    return all > 0 && beyond > 0 ? beyond / all : 0.0;
  }
};

// The same for patterns that depend on the tokens, where not every query has a target. What the
// head does elsewhere is rest; what it does beside the targets on the same queries competes.
// Targets that are also the first, previous or own token tell nothing and are left out.
struct TokenEvidence {
  Evidence targets;
  std::int64_t queries = 0;
  Evidence first, self, previous, diffuse;  // of the same queries
};

// Everything a name is made from.
struct PatternEvidence {
  Evidence first, self, previous, stripes, diffuse, fragments;
  Evidence offset;  // of the best fixed offset from 2 on
  std::int64_t offset_distance = 0;
  std::int64_t offset_queries = 0;
  TokenEvidence duplicate, induction;
};

struct HeadStatistics {
  HeadId head;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;   // all queries
  std::int64_t queries = 0;  // choosing ones
  bool empty = true;         // no attention at all: every share below is 0

  double mass = 0;                  // mean m(i), all queries
  double self = 0;                  // mean w(i,i): diagonal intensity
  double previous = 0;              // mean w(i,i-1)
  double first = 0;                 // mean w(i,0): the sink
  std::int64_t best_offset = 0;     // k of the largest mean w(i,i-k), among offsets that at least a
  double best_offset_mass = 0;      // quarter of the choosing queries have
  double diagonal_dominance = 0;    // sum w(i,i) / sum m(i); above 1/2: a diagonal-dominant head
  double peak = 0;                  // largest w(i,j)
  double mean_peak = 0;             // mean over queries of the largest weight
  double importance = 0;            // mean over queries of the largest weight but the first token's
  double entropy = 0;               // mean over rows that are not empty, nats, of w(i,.)/m(i)
  double effective_keys = 0;        // mean of exp(entropy)
  double uniformity = 0;            // mean of sum_j min(w/m, 1/(i+1)): 1 for uniform rows
  double empty_rows = 0;            // share of choosing queries without attention
  double banding = 0;               // share of attention on band columns (head_statistics.cc)
  double bands = 0;                 // band columns per sequence
  double horizontal_lines = 0;      // share of rows i >= 3 with effective keys >= (i+1)/2
  double open_edges_per_query = 0;  // weights above 0, all queries
  double edge_fraction = 0;         // open edges / causal pairs
  double strong_off_diagonal = 0;   // share of the pairs j < i with w > 1/2
  TargetScore previous_token, duplicate_token, induction;
  bool tokens_known = false;  // otherwise duplicate_token and induction say nothing

  PatternEvidence evidence;

  // Means over blocks of sequences (sequence s is in block s mod kMaxBlocks), for permutation
  // tests.
  struct Block {
    double self = 0, first = 0, mean_peak = 0, open_edges_per_query = 0;
  };
  std::vector<Block> blocks;
};

inline constexpr std::int64_t kMaxBlocks = 64;

// For each position, the last earlier position with the same token, or -1.
std::vector<std::int64_t> EarlierCopies(std::span<const std::int32_t> ids);

// Sums of one head. Memory depends on the longest sequence, not on their number.
class HeadAccumulator {
 public:
  // `first_sequence`: the number of the first sequence that is added, of those of the whole text.
  explicit HeadAccumulator(std::int64_t first_sequence = 0) : first_sequence_(first_sequence) {}

  // map [T,T]. earlier_copies [T], or empty if the tokens are unknown.
  void Add(const float* map, std::int64_t length, std::span<const std::int64_t> earlier_copies);

  HeadStatistics Finish(HeadId head) const;

  // All that is added up, as numbers that several accumulators' can be added up from: of sequences
  // of at most `longest` tokens. The largest weight is no sum and goes beside them.
  static std::int64_t SumCount(std::int64_t longest);
  void StoreSums(std::span<double> sums) const;
  static HeadAccumulator FromSums(std::span<const double> sums, double peak);
  double peak() const { return peak_; }

 private:
  struct TargetSums {
    std::int64_t queries = 0;
    double on = 0, distance = 0;  // distance: sum of |w - target|
  };
  // By distance k = i - j from query to key.
  struct Diagonal {
    double sum = 0;  // all keys
    // Keys from 1 on, by third of the queries that reach them: a fixed offset shows in every third,
    // a fragment does not.
    double on[3] = {0, 0, 0}, chance[3] = {0, 0, 0}, all[3] = {0, 0, 0};
    double run = 0;  // weights in runs of at least kRun strong cells down the diagonal
    std::int64_t queries = 0, later_queries = 0;  // with a key at this distance; with one from 1 on
  };
  struct BlockSums {
    double self = 0, first = 0, peak = 0;
    std::int64_t open = 0, queries = 0, tokens = 0;
  };
  struct Row;
  // Calls visit(number) for every sum of an accumulator, always in the same order.
  template <typename Accumulator, typename Visit>
  static void VisitSums(Accumulator& of, const Visit& visit);

  void AddRow(const Row& row);
  void AddTargets(const Row& row, std::span<const std::int64_t> earlier_copies);
  void AddToken(const Row& row, std::span<const std::int64_t> targets, TokenEvidence* evidence);
  void AddRuns(const Row& row, std::int64_t nonempty_row);
  void AddBands(const float* map, std::int64_t length);
  void AddDiagonalRoom(std::int64_t length);

  std::int64_t first_sequence_ = 0;
  std::int64_t sequences_ = 0, tokens_ = 0, queries_ = 0, rows_ = 0, shape_rows_ = 0, pairs_ = 0,
               open_ = 0, strong_ = 0, bands_ = 0, lines_ = 0;
  std::int64_t unknown_ = 0;  // sequences whose tokens are
  double mass_ = 0, choosing_mass_ = 0, self_ = 0, previous_ = 0, first_ = 0, peak_ = 0,
         peak_sum_ = 0, importance_ = 0, entropy_ = 0, effective_ = 0, uniformity_ = 0,
         band_mass_ = 0;
  TargetSums previous_target_, duplicate_target_, induction_target_;
  Evidence first_evidence_, diffuse_, stripes_;
  double run_room_ = 0;  // attention of rows in which a run can be
  TokenEvidence duplicate_, induction_;
  std::vector<Diagonal> diagonals_;
  std::vector<BlockSums> blocks_;
  // Of the sequence at hand.
  std::vector<double> row_mass_;
  struct Run {
    std::int64_t last_row = -2, length = 0;
    double pending = 0;
  };
  std::vector<Run> runs_;
};

}  // namespace clearhead
