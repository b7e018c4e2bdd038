// SPDX-License-Identifier: MIT
#include "heads/head_statistics.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <unordered_map>

#include "core/error.h"

namespace clearhead {
namespace {

// A strong cell holds at least a quarter of its row and twice what uniform attention would give it.
constexpr double kStrongShare = 0.25, kStrongOverUniform = 2.0;
constexpr std::int64_t kRun = 3;

// A band is a column j >= 1 that later queries (i >= j+2: not the own or previous token) share:
// over n >= max(3, T/8) rows that are not empty it gets 2 + 6/n times the uniform weight (columns
// of few rows reach twice that by chance), and at least half of the rows give it one and a half
// times.
double BandOverUniform(std::int64_t rows) { return 2.0 + 6.0 / static_cast<double>(rows); }
constexpr double kBandRowOverUniform = 1.5;

// From this many queries per sequence on, a line must show in every third of them.
constexpr std::int64_t kThirdsFrom = 12;

void AddEvidence(double on, double chance, double all, Evidence* evidence) {
  evidence->on += on;
  evidence->chance += chance;
  evidence->all += all;
}

double Ratio(double above, double below) { return below > 0 ? above / below : 0.0; }
double Mean(double sum, std::int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

}  // namespace

// One row of a map and what is known of it.
struct HeadAccumulator::Row {
  const float* w;
  std::int64_t i, length;
  double mass = 0;
  double overlap = 0;  // sum of min(w, m/(i+1))
  // The same without the two largest weights, which a mixture of two sharp patterns has too: the
  // evidence for spreading out. `room` is its value for a uniform row.
  double spread = 0, room = 0;
  double uniform() const { return 1.0 / static_cast<double>(i + 1); }
};

std::vector<std::int64_t> EarlierCopies(std::span<const std::int32_t> ids) {
  std::vector<std::int64_t> earlier(ids.size());
  std::unordered_map<std::int32_t, std::int64_t> last;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto [entry, is_new] = last.try_emplace(ids[i], -1);
    earlier[i] = entry->second;
    entry->second = static_cast<std::int64_t>(i);
  }
  return earlier;
}

void HeadAccumulator::Add(const float* map, std::int64_t length,
                          std::span<const std::int64_t> earlier_copies) {
  Check(length >= 1, "a sequence has at least one token");
  Check(earlier_copies.empty() || static_cast<std::int64_t>(earlier_copies.size()) == length,
        "one earlier copy per token");
  if (earlier_copies.empty()) ++unknown_;
  const auto block = static_cast<std::size_t>((first_sequence_ + sequences_) % kMaxBlocks);
  if (blocks_.size() <= block) blocks_.resize(block + 1);
  if (static_cast<std::int64_t>(diagonals_.size()) < length) {
    diagonals_.resize(static_cast<std::size_t>(length));
  }
  runs_.assign(static_cast<std::size_t>(length), {});
  row_mass_.assign(static_cast<std::size_t>(length), 0.0);
  const double peak_before = peak_sum_, self_before = self_, first_before = first_;
  const std::int64_t open_before = open_;

  std::int64_t nonempty = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    Row row{.w = map + i * length, .i = i, .length = length};
    for (std::int64_t j = 0; j <= i; ++j) {
      row.mass += row.w[j];
      open_ += row.w[j] > 0.0f ? 1 : 0;
    }
    row_mass_[static_cast<std::size_t>(i)] = row.mass;
    mass_ += row.mass;
    AddTargets(row, earlier_copies);
    if (i == 0) continue;
    const double even = row.mass * row.uniform();
    double largest = 0, second = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      const double w = row.w[j];
      row.overlap += std::min(w, even);
      second = std::max(second, std::min(w, largest));
      largest = std::max(largest, w);
    }
    row.spread = std::max(0.0, row.overlap - std::min(largest, even) - std::min(second, even));
    row.room = row.mass * static_cast<double>(i - 1) * row.uniform();
    AddRow(row);
    if (!earlier_copies.empty()) {
      std::vector<std::int64_t> copies, after;
      for (std::int64_t j = earlier_copies[static_cast<std::size_t>(i)]; j >= 0;
           j = earlier_copies[static_cast<std::size_t>(j)]) {
        const auto tells = [&](std::int64_t key) { return key >= 1 && key < i - 1; };
        if (tells(j)) copies.push_back(j);
        if (tells(j + 1)) after.push_back(j + 1);
      }
      AddToken(row, copies, &duplicate_);
      AddToken(row, after, &induction_);
    }
    if (row.mass > 0) AddRuns(row, nonempty++);
  }
  AddBands(map, length);
  AddDiagonalRoom(length);

  ++sequences_;
  tokens_ += length;
  queries_ += length - 1;
  pairs_ += length * (length + 1) / 2;
  BlockSums& sums = blocks_[block];
  sums.self += self_ - self_before;
  sums.first += first_ - first_before;
  sums.peak += peak_sum_ - peak_before;
  sums.open += open_ - open_before;
  sums.queries += length - 1;
  sums.tokens += length;
}

// Sums over a choosing query, i >= 1.
void HeadAccumulator::AddRow(const Row& row) {
  const std::int64_t i = row.i;
  const float* w = row.w;
  const double uniform = row.uniform();
  choosing_mass_ += row.mass;
  self_ += w[i];
  previous_ += w[i - 1];
  first_ += w[0];
  const float rest = *std::max_element(w + 1, w + i + 1);
  const double peak = std::max(rest, w[0]);
  peak_ = std::max(peak_, peak);
  peak_sum_ += peak;
  importance_ += rest;
  for (std::int64_t j = 0; j < i; ++j) strong_ += w[j] > 0.5f ? 1 : 0;

  // With more than two tokens, query 1 cannot tell the first token from the previous one.
  if (i >= 2 || row.length == 2) {
    AddEvidence(w[0], row.mass * uniform, row.mass, &first_evidence_);
  }
  AddEvidence(row.spread, 0.0, row.room, &diffuse_);

  // Distance k = i - j. Of the n = T-1-k queries that reach a key from 1 on, this is the one with
  // number j - 1; its third is 3(j-1)/n, which grows with j.
  const std::int64_t left = row.length - 1 - i;
  const std::int64_t second = (left + 4) / 2, third = 2 * left + 3;
  for (std::int64_t j = 0; j <= i; ++j) {
    Diagonal& diagonal = diagonals_[static_cast<std::size_t>(i - j)];
    diagonal.sum += w[j];
    if (j >= 1) diagonal.on[j >= third ? 2 : j >= second ? 1 : 0] += w[j];
  }

  if (row.mass <= 0) return;
  double sum = 0.0;
  for (std::int64_t j = 0; j <= i; ++j) {
    if (w[j] > 0.0f) sum += static_cast<double>(w[j]) * std::log(static_cast<double>(w[j]));
  }
  const double entropy = std::max(0.0, std::log(row.mass) - sum / row.mass);
  const double effective = std::exp(entropy);
  ++rows_;
  entropy_ += entropy;
  effective_ += effective;
  uniformity_ += row.overlap / row.mass;
  if (i >= 3) {
    ++shape_rows_;
    if (effective * uniform >= 0.5) ++lines_;
  }
}

void HeadAccumulator::AddTargets(const Row& row, std::span<const std::int64_t> earlier_copies) {
  const auto add = [&](double on, std::int64_t targets, TargetSums* sums) {
    if (targets > 0) ++sums->queries;
    sums->on += on;
    // |w - 1| on the targets, |w| elsewhere; no weight is above 1 by more than rounding.
    sums->distance += row.mass - on + (static_cast<double>(targets) - on);
  };
  add(row.i > 0 ? row.w[row.i - 1] : 0.0, row.i > 0 ? 1 : 0, &previous_target_);
  if (earlier_copies.empty()) return;
  double copies = 0, after = 0;
  std::int64_t count = 0;
  for (std::int64_t j = earlier_copies[static_cast<std::size_t>(row.i)]; j >= 0;
       j = earlier_copies[static_cast<std::size_t>(j)]) {
    copies += row.w[j];
    after += row.w[j + 1];
    ++count;
  }
  add(copies, count, &duplicate_target_);
  add(after, count, &induction_target_);
}

void HeadAccumulator::AddToken(const Row& row, std::span<const std::int64_t> targets,
                               TokenEvidence* evidence) {
  if (targets.empty() || row.mass <= 0) return;
  double on = 0;
  for (const std::int64_t j : targets) on += row.w[j];
  const double chance = row.mass * row.uniform();
  AddEvidence(on, chance * static_cast<double>(targets.size()), row.mass, &evidence->targets);
  AddEvidence(row.w[0], chance, row.mass, &evidence->first);
  AddEvidence(row.w[row.i], chance, row.mass, &evidence->self);
  AddEvidence(row.w[row.i - 1], chance, row.mass, &evidence->previous);
  AddEvidence(row.spread, 0.0, row.room, &evidence->diffuse);
  ++evidence->queries;
}

// Runs of strong cells down a diagonal; empty rows do not interrupt them.
void HeadAccumulator::AddRuns(const Row& row, std::int64_t nonempty_row) {
  const double least =
      row.mass * std::min(1.0, std::max(kStrongShare, kStrongOverUniform * row.uniform()));
  run_room_ += row.mass;
  // Keys from 1 on, as lines have them: the first token is a column, not a diagonal.
  for (std::int64_t j = 1; j <= row.i; ++j) {
    if (row.w[j] < least) continue;
    const auto k = static_cast<std::size_t>(row.i - j);
    Run& run = runs_[k];
    if (run.last_row != nonempty_row - 1) run = {};
    run.last_row = nonempty_row;
    ++run.length;
    if (run.length < kRun) {
      run.pending += row.w[j];
    } else {
      diagonals_[k].run += run.pending + row.w[j];
      run.pending = 0;
    }
  }
}

void HeadAccumulator::AddBands(const float* map, std::int64_t length) {
  const std::int64_t least = std::max<std::int64_t>(3, length / 8);
  std::vector<double> sums(static_cast<std::size_t>(length), 0.0);
  std::vector<std::int64_t> high(static_cast<std::size_t>(length), 0);
  for (std::int64_t i = 3; i < length; ++i) {
    const float* w = map + i * length;
    const double even = row_mass_[static_cast<std::size_t>(i)] / static_cast<double>(i + 1);
    if (even <= 0) continue;
    const auto enough = static_cast<float>(kBandRowOverUniform * even);
    for (std::int64_t j = 1; j <= i - 2; ++j) {
      sums[static_cast<std::size_t>(j)] += w[j];
      high[static_cast<std::size_t>(j)] += w[j] >= enough ? 1 : 0;
    }
  }
  // From the last row up: what uniform rows would give to a column, and how many rows there are.
  std::vector<std::int64_t> bands;
  double even = 0, all = 0;
  std::int64_t rows = 0;
  for (std::int64_t j = length - 3; j >= 1; --j) {
    const double mass = row_mass_[static_cast<std::size_t>(j + 2)];
    even += mass / static_cast<double>(j + 3);
    rows += mass > 0 ? 1 : 0;
    const bool is_band = length - j - 2 >= least && rows >= least &&
                         sums[static_cast<std::size_t>(j)] >= BandOverUniform(rows) * even &&
                         2 * high[static_cast<std::size_t>(j)] >= rows;
    if (is_band) bands.push_back(j);
  }
  if (bands.empty()) return;
  std::reverse(bands.begin(), bands.end());
  double on = 0, chance = 0;
  for (const std::int64_t j : bands) on += sums[static_cast<std::size_t>(j)];
  std::size_t available = 0;
  for (std::int64_t i = bands.front() + 2; i < length; ++i) {
    while (available < bands.size() && bands[available] <= i - 2) ++available;
    const double mass = row_mass_[static_cast<std::size_t>(i)];
    all += mass;
    chance += mass * static_cast<double>(available) / static_cast<double>(i + 1);
  }
  AddEvidence(on, chance, all, &stripes_);
  bands_ += static_cast<std::int64_t>(bands.size());
  band_mass_ += on;
}

// The attention of the rows that have a key at distance k, by third; for every k at once by sums
// from the last row up.
void HeadAccumulator::AddDiagonalRoom(std::int64_t length) {
  std::vector<double> all(static_cast<std::size_t>(length) + 1, 0.0), chance = all;
  for (std::int64_t i = length - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const double mass = row_mass_[at];
    all[at] = all[at + 1] + mass;
    chance[at] = chance[at + 1] + mass / static_cast<double>(i + 1);
  }
  for (std::int64_t k = 0; k < length; ++k) {
    Diagonal& diagonal = diagonals_[static_cast<std::size_t>(k)];
    const std::int64_t n = length - 1 - k;
    diagonal.queries += length - std::max<std::int64_t>(k, 1);
    diagonal.later_queries += n;
    for (std::int64_t part = 0; part < 3; ++part) {
      const auto first = static_cast<std::size_t>(k + 1 + (n * part + 2) / 3);
      const auto end = static_cast<std::size_t>(k + 1 + (n * (part + 1) + 2) / 3);
      diagonal.all[part] += all[first] - all[end];
      diagonal.chance[part] += chance[first] - chance[end];
    }
  }
}

template <typename Accumulator, typename Visit>
void HeadAccumulator::VisitSums(Accumulator& of, const Visit& visit) {
  const auto evidence = [&](auto& e) {
    visit(e.on);
    visit(e.chance);
    visit(e.all);
  };
  for (auto* count : {&of.sequences_, &of.tokens_, &of.queries_, &of.rows_, &of.shape_rows_,
                      &of.pairs_, &of.open_, &of.strong_, &of.bands_, &of.lines_, &of.unknown_}) {
    visit(*count);
  }
  for (auto* sum : {&of.mass_, &of.choosing_mass_, &of.self_, &of.previous_, &of.first_,
                    &of.peak_sum_, &of.importance_, &of.entropy_, &of.effective_, &of.uniformity_,
                    &of.band_mass_, &of.run_room_}) {
    visit(*sum);
  }
  for (auto* target : {&of.previous_target_, &of.duplicate_target_, &of.induction_target_}) {
    visit(target->queries);
    visit(target->on);
    visit(target->distance);
  }
  for (auto* e : {&of.first_evidence_, &of.diffuse_, &of.stripes_}) evidence(*e);
  for (auto* token : {&of.duplicate_, &of.induction_}) {
    visit(token->queries);
    for (auto* e :
         {&token->targets, &token->first, &token->self, &token->previous, &token->diffuse}) {
      evidence(*e);
    }
  }
  for (auto& block : of.blocks_) {
    visit(block.self);
    visit(block.first);
    visit(block.peak);
    visit(block.open);
    visit(block.queries);
    visit(block.tokens);
  }
  for (auto& diagonal : of.diagonals_) {
    visit(diagonal.sum);
    for (std::size_t part = 0; part < 3; ++part) {
      visit(diagonal.on[part]);
      visit(diagonal.chance[part]);
      visit(diagonal.all[part]);
    }
    visit(diagonal.run);
    visit(diagonal.queries);
    visit(diagonal.later_queries);
  }
}

std::int64_t HeadAccumulator::SumCount(std::int64_t longest) {
  HeadAccumulator any;
  any.blocks_.resize(kMaxBlocks);
  any.diagonals_.resize(static_cast<std::size_t>(longest));
  std::int64_t count = 0;
  VisitSums(any, [&](const auto&) { ++count; });
  return count;
}

void HeadAccumulator::StoreSums(std::span<double> sums) const {
  HeadAccumulator whole = *this;
  whole.blocks_.resize(kMaxBlocks);
  double* to = sums.data();
  VisitSums(whole, [&](const auto& number) { *to++ = static_cast<double>(number); });
  Check(to <= sums.data() + sums.size(), "room for the sums of the longest sequence");
}

HeadAccumulator HeadAccumulator::FromSums(std::span<const double> sums, double peak) {
  HeadAccumulator of;
  of.peak_ = peak;
  of.blocks_.resize(kMaxBlocks);
  // What is left behind the fixed numbers are diagonals.
  const auto fixed = static_cast<std::size_t>(SumCount(0));
  const std::size_t each = static_cast<std::size_t>(SumCount(1)) - fixed;
  of.diagonals_.resize((sums.size() - fixed) / each);
  const double* from = sums.data();
  VisitSums(of, [&](auto& number) {
    number = static_cast<std::remove_reference_t<decltype(number)>>(*from++);
  });
  of.blocks_.resize(static_cast<std::size_t>(std::min(of.sequences_, kMaxBlocks)));
  return of;
}

HeadStatistics HeadAccumulator::Finish(HeadId head) const {
  HeadStatistics s{.head = head, .sequences = sequences_, .tokens = tokens_, .queries = queries_};
  s.empty = mass_ <= 0;
  s.mass = Mean(mass_, tokens_);
  s.self = Mean(self_, queries_);
  s.previous = Mean(previous_, queries_);
  s.first = Mean(first_, queries_);
  s.diagonal_dominance = Ratio(self_, choosing_mass_);
  s.peak = peak_;
  s.mean_peak = Mean(peak_sum_, queries_);
  s.importance = Mean(importance_, queries_);
  s.entropy = Mean(entropy_, rows_);
  s.effective_keys = Mean(effective_, rows_);
  s.uniformity = Mean(uniformity_, rows_);
  s.empty_rows = Mean(static_cast<double>(queries_ - rows_), queries_);
  s.banding = Ratio(band_mass_, choosing_mass_);
  s.bands = Mean(static_cast<double>(bands_), sequences_);
  s.horizontal_lines = Mean(static_cast<double>(lines_), shape_rows_);
  s.open_edges_per_query = Mean(static_cast<double>(open_), tokens_);
  s.edge_fraction = Mean(static_cast<double>(open_), pairs_);
  s.strong_off_diagonal = Mean(static_cast<double>(strong_), pairs_ - tokens_);
  const bool tokens_known = unknown_ == 0;
  s.tokens_known = tokens_known;
  const auto target = [&](const TargetSums& sums) {
    return TargetScore{.queries = sums.queries,
                       .mass = Mean(sums.on, sums.queries),
                       .share = Ratio(sums.on, mass_),
                       .closeness = 1.0 - Mean(sums.distance, tokens_)};
  };
  s.previous_token = target(previous_target_);
  if (tokens_known) {
    s.duplicate_token = target(duplicate_target_);
    s.induction = target(induction_target_);
  }

  PatternEvidence& e = s.evidence;
  e.first = first_evidence_;
  e.diffuse = diffuse_;
  e.stripes = stripes_;
  if (tokens_known) {
    e.duplicate = duplicate_;
    e.induction = induction_;
  }
  const double spread = diffuse_.Score(0);
  // A line is as good as its weakest third, where thirds are long enough to say something.
  const auto line = [&](std::size_t k) {
    if (k >= diagonals_.size()) return Evidence{};
    const Diagonal& d = diagonals_[k];
    Evidence whole, weakest;
    for (int part = 0; part < 3; ++part) {
      const Evidence third{d.on[part], d.chance[part], d.all[part]};
      AddEvidence(third.on, third.chance, third.all, &whole);
      if (third.all > 0 && (weakest.all <= 0 || third.Score(spread) < weakest.Score(spread)))
        weakest = third;
    }
    return d.later_queries >= kThirdsFrom * sequences_ ? weakest : whole;
  };
  e.self = line(0);
  e.previous = line(1);
  double best = -1;
  const std::int64_t least = std::max<std::int64_t>(3, queries_ / 2);
  for (std::size_t k = 0; k < diagonals_.size(); ++k) {
    const Diagonal& d = diagonals_[k];
    const double mean = Mean(d.sum, d.queries);
    if (4 * d.queries >= queries_ && mean > s.best_offset_mass) {
      s.best_offset_mass = mean;
      s.best_offset = static_cast<std::int64_t>(k);
    }
    if (k < 2 || d.later_queries < least) continue;
    if (const Evidence evidence = line(k); evidence.Score(spread) > best) {
      best = evidence.Score(spread);
      e.offset = evidence;
      e.offset_distance = static_cast<std::int64_t>(k);
      e.offset_queries = d.later_queries;
    }
  }
  // Runs are fragments as far as they exceed what the diagonal has everywhere.
  e.fragments.all = run_room_;
  for (std::size_t k = 0; k < diagonals_.size(); ++k) {
    const Diagonal& d = diagonals_[k];
    const double even = line(k).all > 0 ? line(k).on / line(k).all : 0.0;
    const double everywhere = even * (d.all[0] + d.all[1] + d.all[2]);
    e.fragments.on += std::max(0.0, d.run - std::max(everywhere, 0.0));
  }

  for (const BlockSums& sums : blocks_) {
    s.blocks.push_back({.self = Mean(sums.self, sums.queries),
                        .first = Mean(sums.first, sums.queries),
                        .mean_peak = Mean(sums.peak, sums.queries),
                        .open_edges_per_query = Mean(static_cast<double>(sums.open), sums.tokens)});
  }
  return s;
}

}  // namespace clearhead
