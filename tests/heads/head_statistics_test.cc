// SPDX-License-Identifier: MIT
// Statistics against a slow, obvious computation of their definitions.
#include "heads/head_statistics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/threads.h"
#include "heads/head_report.h"
#include "heads/synthetic_heads.h"
#include "support/with_threads.h"

namespace clearhead {
namespace {

struct Sequence {
  std::int64_t T;
  std::vector<float> map;
  std::vector<std::int32_t> ids;
  double W(std::int64_t i, std::int64_t j) const {
    return map[static_cast<std::size_t>(i * T + j)];
  }
  double Row(std::int64_t i) const {
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) sum += W(i, j);
    return sum;
  }
  bool Same(std::int64_t i, std::int64_t j) const {
    return ids[static_cast<std::size_t>(i)] == ids[static_cast<std::size_t>(j)];
  }
};

// Rows of random weights, some empty, some closed in part, with tokens that repeat.
Sequence RandomSequence(std::int64_t T, std::uint64_t seed) {
  RandomStream random(seed);
  Sequence s{T, std::vector<float>(static_cast<std::size_t>(T * T), 0.0f), {}};
  for (std::int64_t i = 0; i < T; ++i) {
    s.ids.push_back(static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(T / 3 + 1))));
    if (random.Uniform() < 0.1) continue;
    double sum = 0;
    std::vector<double> row;
    for (std::int64_t j = 0; j <= i; ++j) {
      row.push_back(std::pow(random.Uniform(), 6));
      sum += row.back();
    }
    const bool gated = random.Uniform() < 0.3;
    for (std::int64_t j = 0; j <= i; ++j) {
      if (gated && random.Uniform() < 0.5) continue;
      s.map[static_cast<std::size_t>(i * T + j)] =
          static_cast<float>(row[static_cast<std::size_t>(j)] / sum);
    }
  }
  return s;
}

// The definitions of head_statistics.h and docs/heads.md, one at a time.
HeadStatistics Slow(const std::vector<Sequence>& all) {
  HeadStatistics r;
  double mass = 0, choosing = 0, self = 0, previous = 0, first = 0, mean_peak = 0, importance = 0;
  double entropy = 0, effective = 0, uniformity = 0, rows = 0, lines = 0, line_rows = 0, open = 0;
  double strong = 0, pairs = 0, off = 0, band_mass = 0, bands = 0;
  std::int64_t longest = 0;
  for (const Sequence& s : all) {
    longest = std::max(longest, s.T);
    r.tokens += s.T;
    r.queries += s.T - 1;
    for (std::int64_t i = 0; i < s.T; ++i) {
      const double m = s.Row(i);
      mass += m;
      for (std::int64_t j = 0; j <= i; ++j) {
        pairs += 1;
        open += s.W(i, j) > 0;
        if (j < i) off += 1;
        if (j < i && s.W(i, j) > 0.5) strong += 1;
      }
      if (i == 0) continue;
      choosing += m;
      self += s.W(i, i);
      previous += s.W(i, i - 1);
      first += s.W(i, 0);
      double peak = 0, rest = 0, h = 0, overlap = 0;
      for (std::int64_t j = 0; j <= i; ++j) {
        peak = std::max(peak, s.W(i, j));
        if (j > 0) rest = std::max(rest, s.W(i, j));
        if (m > 0 && s.W(i, j) > 0) h -= s.W(i, j) / m * std::log(s.W(i, j) / m);
        if (m > 0) overlap += std::min(s.W(i, j) / m, 1.0 / static_cast<double>(i + 1));
      }
      r.peak = std::max(r.peak, peak);
      mean_peak += peak;
      importance += rest;
      if (m <= 0) continue;
      rows += 1;
      entropy += h;
      effective += std::exp(h);
      uniformity += overlap;
      if (i >= 3) {
        line_rows += 1;
        lines += std::exp(h) >= 0.5 * static_cast<double>(i + 1);
      }
    }
    // Bands: columns that at least max(3, T/8) later rows share.
    for (std::int64_t j = 1; j < s.T; ++j) {
      double sum = 0, even = 0, high = 0, used = 0;
      for (std::int64_t i = j + 2; i < s.T; ++i) {
        if (s.Row(i) <= 0) continue;
        const double uniform = s.Row(i) / static_cast<double>(i + 1);
        sum += s.W(i, j);
        even += uniform;
        used += 1;
        high += s.W(i, j) >= 1.5 * uniform;
      }
      const double least = static_cast<double>(std::max<std::int64_t>(3, s.T / 8));
      if (used >= least && sum >= (2 + 6 / used) * even && 2 * high >= used) {
        bands += 1;
        band_mass += sum;
      }
    }
  }
  const auto tokens = static_cast<double>(r.tokens), queries = static_cast<double>(r.queries);
  const auto ratio = [](double a, double b) { return b > 0 ? a / b : 0; };
  r.sequences = static_cast<std::int64_t>(all.size());
  r.empty = mass == 0;
  r.mass = ratio(mass, tokens);
  r.self = ratio(self, queries);
  r.previous = ratio(previous, queries);
  r.first = ratio(first, queries);
  r.mean_peak = ratio(mean_peak, queries);
  r.importance = ratio(importance, queries);
  r.diagonal_dominance = ratio(self, choosing);
  r.entropy = ratio(entropy, rows);
  r.effective_keys = ratio(effective, rows);
  r.uniformity = ratio(uniformity, rows);
  r.empty_rows = ratio(queries - rows, queries);
  r.horizontal_lines = ratio(lines, line_rows);
  r.banding = ratio(band_mass, choosing);
  r.bands = ratio(bands, static_cast<double>(all.size()));
  r.open_edges_per_query = ratio(open, tokens);
  r.edge_fraction = ratio(open, pairs);
  r.strong_off_diagonal = ratio(strong, off);

  for (std::int64_t k = 0; k < longest; ++k) {
    double sum = 0, count = 0;
    for (const Sequence& s : all) {
      for (std::int64_t i = std::max<std::int64_t>(k, 1); i < s.T; ++i) {
        sum += s.W(i, i - k);
        count += 1;
      }
    }
    if (4 * count >= queries && ratio(sum, count) > r.best_offset_mass) {
      r.best_offset_mass = ratio(sum, count);
      r.best_offset = k;
    }
  }

  // TransformerLens's detection patterns as full matrices.
  const auto score = [&](auto is_target) {
    TargetScore result;
    double on = 0, on_all = 0, difference = 0;
    for (const Sequence& s : all) {
      for (std::int64_t i = 0; i < s.T; ++i) {
        bool any = false;
        for (std::int64_t j = 0; j <= i; ++j) {
          const double target = is_target(s, i, j) ? 1 : 0;
          any |= target > 0;
          on += target * s.W(i, j);
          on_all += s.W(i, j);
          difference += std::abs(s.W(i, j) - target);
        }
        result.queries += any ? 1 : 0;
      }
    }
    result.mass = ratio(on, static_cast<double>(result.queries));
    result.share = ratio(on, on_all);
    result.closeness = 1 - ratio(difference, tokens);
    return result;
  };
  r.previous_token =
      score([](const Sequence&, std::int64_t i, std::int64_t j) { return j == i - 1; });
  r.duplicate_token = score(
      [](const Sequence& s, std::int64_t i, std::int64_t j) { return j < i && s.Same(i, j); });
  r.induction = score(
      [](const Sequence& s, std::int64_t i, std::int64_t j) { return j >= 1 && s.Same(i, j - 1); });
  return r;
}

void ExpectSame(const TargetScore& a, const TargetScore& b) {
  EXPECT_EQ(a.queries, b.queries);
  EXPECT_NEAR(a.mass, b.mass, 1e-6);
  EXPECT_NEAR(a.share, b.share, 1e-6);
  EXPECT_NEAR(a.closeness, b.closeness, 1e-6);
}

void ExpectSame(const HeadStatistics& a, const HeadStatistics& b) {
  EXPECT_EQ(a.sequences, b.sequences);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.queries, b.queries);
  EXPECT_EQ(a.empty, b.empty);
  EXPECT_EQ(a.best_offset, b.best_offset);
  const std::vector<double HeadStatistics::*> values = {&HeadStatistics::mass,
                                                        &HeadStatistics::self,
                                                        &HeadStatistics::previous,
                                                        &HeadStatistics::first,
                                                        &HeadStatistics::best_offset_mass,
                                                        &HeadStatistics::diagonal_dominance,
                                                        &HeadStatistics::peak,
                                                        &HeadStatistics::mean_peak,
                                                        &HeadStatistics::importance,
                                                        &HeadStatistics::entropy,
                                                        &HeadStatistics::effective_keys,
                                                        &HeadStatistics::uniformity,
                                                        &HeadStatistics::empty_rows,
                                                        &HeadStatistics::banding,
                                                        &HeadStatistics::bands,
                                                        &HeadStatistics::horizontal_lines,
                                                        &HeadStatistics::open_edges_per_query,
                                                        &HeadStatistics::edge_fraction,
                                                        &HeadStatistics::strong_off_diagonal};
  for (std::size_t v = 0; v < values.size(); ++v) {
    EXPECT_NEAR(a.*values[v], b.*values[v], 1e-6) << "value " << v;
  }
  ExpectSame(a.previous_token, b.previous_token);
  ExpectSame(a.duplicate_token, b.duplicate_token);
  ExpectSame(a.induction, b.induction);
}

HeadStatistics Fast(const std::vector<Sequence>& all) {
  HeadAccumulator sums;
  for (const Sequence& s : all) sums.Add(s.map.data(), s.T, EarlierCopies(s.ids));
  return sums.Finish({0, 0});
}

TEST(HeadStatistics, AgreeWithTheSlowReference) {
  for (const std::int64_t T : {1, 2, 3, 4, 5, 7, 13, 16, 37, 64, 127}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(fmt::format("T = {}, seed = {}", T, seed));
      const std::vector<Sequence> one = {RandomSequence(T, seed)};
      ExpectSame(Fast(one), Slow(one));
    }
  }
}

TEST(HeadStatistics, PatternsWithBandsAgreeToo) {
  SyntheticHeads heads(5);
  for (const HeadKind kind : {HeadKind::kStripes, HeadKind::kInduction, HeadKind::kDiffuse}) {
    for (const std::int64_t T : {16, 29, 100}) {
      const SyntheticHead head = heads.Make(kind, T, Spoil::kNoiseAndGates);
      SCOPED_TRACE(fmt::format("{}, T = {}", KindName(kind), T));
      const std::vector<Sequence> one = {{T, head.map, head.ids}};
      ExpectSame(Fast(one), Slow(one));
      if (kind == HeadKind::kStripes) {
        EXPECT_GT(Fast(one).bands, 0);
      }
    }
  }
}

TEST(HeadStatistics, ATextIsTheAverageOfItsSequences) {
  std::vector<Sequence> all;
  std::vector<HeadStatistics> single;
  for (const std::int64_t T : {17, 1, 30, 2, 30, 5}) {
    all.push_back(RandomSequence(T, static_cast<std::uint64_t>(T) + 100 + all.size()));
    single.push_back(Fast({all.back()}));
  }
  const HeadStatistics text = Fast(all);
  ExpectSame(text, Slow(all));
  // Averages weighted by what each value averages over.
  const auto average = [&](double HeadStatistics::*value, auto weight) {
    double sum = 0, weights = 0;
    for (const HeadStatistics& s : single) {
      sum += s.*value * weight(s);
      weights += weight(s);
    }
    return sum / weights;
  };
  const auto queries = [](const HeadStatistics& s) { return static_cast<double>(s.queries); };
  const auto tokens = [](const HeadStatistics& s) { return static_cast<double>(s.tokens); };
  const auto rows = [](const HeadStatistics& s) {
    return static_cast<double>(s.queries) * (1 - s.empty_rows);
  };
  for (const auto value : {&HeadStatistics::self, &HeadStatistics::first, &HeadStatistics::previous,
                           &HeadStatistics::mean_peak, &HeadStatistics::importance}) {
    EXPECT_NEAR(text.*value, average(value, queries), 1e-6);
  }
  for (const auto value : {&HeadStatistics::mass, &HeadStatistics::open_edges_per_query}) {
    EXPECT_NEAR(text.*value, average(value, tokens), 1e-6);
  }
  for (const auto value :
       {&HeadStatistics::entropy, &HeadStatistics::effective_keys, &HeadStatistics::uniformity}) {
    EXPECT_NEAR(text.*value, average(value, rows), 1e-6);
  }
}

TEST(HeadStatistics, EmptyHeadsHaveNoNan) {
  const std::vector<Sequence> nothing = {{7, std::vector<float>(49, 0.0f), {1, 2, 1, 2, 1, 2, 3}}};
  const HeadStatistics s = Fast(nothing);
  ExpectSame(s, Slow(nothing));
  EXPECT_TRUE(s.empty);
  EXPECT_EQ(s.induction.share, 0);
  EXPECT_EQ(s.entropy, 0);
  EXPECT_EQ(s.empty_rows, 1);
  EXPECT_FALSE(std::isnan(s.diagonal_dominance));
}

TEST(HeadStatistics, UnknownTokensAreSaid) {
  HeadAccumulator sums;
  const std::vector<float> map = {1, 0, 0.5f, 0.5f};
  sums.Add(map.data(), 2, {});
  EXPECT_FALSE(sums.Finish({0, 0}).tokens_known);
}

// A source of two sequences and two layers, for whole reports.
AttentionSource TestSource(std::vector<Sequence> sequences) {
  AttentionSource source{.label = "test", .layers = 2, .heads = 3};
  for (const Sequence& s : sequences) source.sequences.push_back({s.T, s.ids});
  source.visit = [sequences](std::size_t s, const LayerVisitor& visitor) {
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      std::vector<float> maps;
      for (int head = 0; head < 3; ++head) {
        for (const float w : sequences[s].map) {
          maps.push_back(w / static_cast<float>(1 + head + 3 * layer));
        }
      }
      visitor(layer, maps.data());
    }
  };
  return source;
}

TEST(HeadReport, ThreadsDoNotMatter) {
  const AttentionSource source = TestSource({RandomSequence(40, 1), RandomSequence(23, 2)});
  std::vector<ModelReport> reports;
  for (const int threads : {1, 2, 3}) {
    const UseThreads scope(threads);
    reports.push_back(AnalyseHeads(source));
  }
  for (const ModelReport& report : reports) {
    ASSERT_EQ(report.heads.size(), 6u);
    EXPECT_EQ(report.tokens, 63);
    EXPECT_EQ(report.longest, 40);
    for (std::size_t h = 0; h < 6; ++h) {
      EXPECT_EQ(report.heads[h].statistics.entropy, reports[0].heads[h].statistics.entropy);
      EXPECT_EQ(report.heads[h].name.sentence, reports[0].heads[h].name.sentence);
      EXPECT_EQ(report.heads[h].statistics.head,
                (HeadId{static_cast<std::int64_t>(h) / 3, static_cast<std::int64_t>(h) % 3}));
    }
  }
  // Fainter copies of one head, in order.
  const std::vector<HeadId> ranked = ByImportance(reports[0]);
  for (std::size_t h = 0; h < 6; ++h) EXPECT_EQ(ranked[h], reports[0].heads[h].statistics.head);
}

}  // namespace
}  // namespace clearhead
