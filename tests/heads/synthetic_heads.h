// SPDX-License-Identifier: MIT
// Attention maps whose truth is known: every kind of head pure, mixed, noisy, gated or empty.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/random.h"
#include "heads/head_names.h"

namespace clearhead {

struct SyntheticHead {
  std::int64_t length = 0;
  std::vector<float> map;  // [T,T]
  std::vector<std::int32_t> ids;
  HeadKind truth = HeadKind::kOther;
  std::set<HeadKind> parts;  // of a hybrid
  std::int64_t offset = 0;   // of an offset head, pure or as a part

  HeadStatistics Statistics() const {
    HeadAccumulator sums;
    sums.Add(map.data(), length, EarlierCopies(ids));
    return sums.Finish({0, 0});
  }
};

enum class Spoil { kNothing, kNoise, kClosedRows, kClosedFaint, kNoiseAndGates };

// The shortest sequence on which a kind can be told from the others.
inline std::int64_t ShortestFor(HeadKind kind) {
  switch (kind) {
    case HeadKind::kSelf:
    case HeadKind::kNearEmpty:
      return 1;
    case HeadKind::kFirstToken:
    case HeadKind::kPreviousToken:
      return 3;
    case HeadKind::kDiffuse:
      return 4;
    case HeadKind::kOffset:
      return 9;
    case HeadKind::kStripes:
    case HeadKind::kHybrid:
      return 12;
    case HeadKind::kInduction:
    case HeadKind::kDuplicateToken:
      return 16;
    default:
      return 48;
  }
}

class SyntheticHeads {
 public:
  explicit SyntheticHeads(std::uint64_t seed) : random_(seed) {}

  SyntheticHead Make(HeadKind kind, std::int64_t T, Spoil spoil) {
    T_ = T;
    SyntheticHead head{.length = T, .truth = kind};
    // Tokens that repeat, as in a text, for the kinds that look at copies; else mostly different.
    const bool copies = kind == HeadKind::kInduction || kind == HeadKind::kDuplicateToken;
    const std::int64_t vocabulary = copies ? std::max<std::int64_t>(4, T / 4) : 4 * T;
    for (std::int64_t i = 0; i < T; ++i)
      head.ids.push_back(static_cast<std::int32_t>(Below(vocabulary)));
    ids_ = &head.ids;

    std::vector<double> rows = Zeros();
    if (kind == HeadKind::kHybrid) {
      const std::vector<HeadKind> parts = {HeadKind::kFirstToken,    HeadKind::kSelf,
                                           HeadKind::kPreviousToken, HeadKind::kOffset,
                                           HeadKind::kStripes,       HeadKind::kDiffuse};
      const auto a = parts[Below(6)];
      auto b = a;
      while (b == a) b = parts[Below(6)];
      const double share = 0.4 + 0.2 * random_.Uniform();
      const std::vector<double> of_a = Pure(a, &head), of_b = Pure(b, &head);
      for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = share * of_a[i] + (1 - share) * of_b[i];
      head.parts = {a, b};
    } else if (kind == HeadKind::kNearEmpty) {
      rows = Pure(static_cast<HeadKind>(Below(3)), &head);
    } else {
      rows = Pure(kind, &head);
    }
    if (spoil == Spoil::kNoise || spoil == Spoil::kNoiseAndGates) {
      AddNoise(kind == HeadKind::kHybrid ? 0.1 : 0.25, &rows);
    }
    if (spoil == Spoil::kClosedRows || spoil == Spoil::kNoiseAndGates) CloseRows(&rows);
    if (spoil == Spoil::kClosedFaint) CloseFaint(kind == HeadKind::kHybrid ? 0.1 : 0.33, &rows);
    if (kind == HeadKind::kNearEmpty) {
      const double left = random_.Uniform() < 0.3 ? 0.0 : 0.04 * random_.Uniform();
      for (double& w : rows) w *= left;
    }
    head.map.assign(rows.begin(), rows.end());
    return head;
  }

 private:
  std::size_t Below(std::int64_t bound) { return random_.Below(static_cast<std::uint64_t>(bound)); }
  std::vector<double> Zeros() const {
    return std::vector<double>(static_cast<std::size_t>(T_ * T_), 0.0);
  }
  double& At(std::vector<double>& rows, std::int64_t i, std::int64_t j) const {
    return rows[static_cast<std::size_t>(i * T_ + j)];
  }

  std::vector<double> Pure(HeadKind kind, SyntheticHead* head) {
    std::vector<double> rows = Zeros();
    const auto to = [&](std::int64_t i, std::int64_t j) { At(rows, i, j) = 1.0; };
    switch (kind) {
      case HeadKind::kFirstToken:
        for (std::int64_t i = 0; i < T_; ++i) to(i, 0);
        break;
      case HeadKind::kSelf:
        for (std::int64_t i = 0; i < T_; ++i) to(i, i);
        break;
      case HeadKind::kPreviousToken:
        for (std::int64_t i = 0; i < T_; ++i) to(i, std::max<std::int64_t>(0, i - 1));
        break;
      case HeadKind::kOffset:
        head->offset = 2 + static_cast<std::int64_t>(Below(std::min<std::int64_t>(12, T_ / 3 - 1)));
        for (std::int64_t i = 0; i < T_; ++i) to(i, std::max<std::int64_t>(0, i - head->offset));
        break;
      case HeadKind::kInduction:
      case HeadKind::kDuplicateToken:
        for (std::int64_t i = 0; i < T_; ++i) {
          std::vector<std::int64_t> targets;
          for (std::int64_t j = 0; j < i; ++j) {
            const bool same =
                (*ids_)[static_cast<std::size_t>(j)] == (*ids_)[static_cast<std::size_t>(i)];
            if (same) targets.push_back(kind == HeadKind::kInduction ? j + 1 : j);
          }
          if (targets.empty()) targets = {0};
          for (const std::int64_t j : targets)
            At(rows, i, j) += 1.0 / static_cast<double>(targets.size());
        }
        break;
      case HeadKind::kStripes: {
        std::set<std::int64_t> columns;
        const auto count = 1 + Below(std::max<std::int64_t>(1, T_ / 12));
        while (columns.size() < count) columns.insert(1 + static_cast<std::int64_t>(Below(T_ / 2)));
        for (std::int64_t i = 0; i < T_; ++i) {
          std::vector<std::int64_t> seen;
          for (const std::int64_t j : columns) {
            if (j <= i) seen.push_back(j);
          }
          if (seen.empty()) seen = {0};
          for (const std::int64_t j : seen) At(rows, i, j) = 1.0 / static_cast<double>(seen.size());
        }
        break;
      }
      case HeadKind::kDiffuse: {
        const bool even = T_ < 12 || random_.Uniform() < 0.5;  // few random draws are not spread
        for (std::int64_t i = 0; i < T_; ++i) Spread(i, even, 1.0, &rows);
        break;
      }
      default: {  // pieces of diagonals
        std::int64_t left = 0, offset = 0;
        for (std::int64_t i = 0; i < T_; ++i) {
          if (left-- == 0) {
            left = 4 + static_cast<std::int64_t>(Below(5));
            const std::int64_t before = offset;
            while (offset == before && i > 0) {
              offset = static_cast<std::int64_t>(Below(std::min(T_ / 2, i + 1)));
            }
          }
          to(i, std::max<std::int64_t>(0, i - offset));
        }
      }
    }
    return rows;
  }

  // Evenly, or with weights drawn at random (Dirichlet).
  void Spread(std::int64_t i, bool even, double mass, std::vector<double>* rows) {
    std::vector<double> draws;
    double sum = 0;
    for (std::int64_t j = 0; j <= i; ++j) {
      draws.push_back(even ? 1.0 : -std::log(random_.Uniform()));
      sum += draws.back();
    }
    for (std::int64_t j = 0; j <= i; ++j) {
      At(*rows, i, j) += mass * draws[static_cast<std::size_t>(j)] / sum;
    }
  }

  void AddNoise(double most, std::vector<double>* rows) {
    for (std::int64_t i = 0; i < T_; ++i) {
      const double share = most * random_.Uniform();
      for (std::int64_t j = 0; j <= i; ++j) At(*rows, i, j) *= 1 - share;
      Spread(i, /*even=*/false, share, rows);
    }
  }

  // Half of the queries see nothing at all.
  void CloseRows(std::vector<double>* rows) {
    for (std::int64_t i = 2; i < T_; ++i) {
      if (random_.Uniform() < 0.5 || i == T_ - 1) continue;
      for (std::int64_t j = 0; j <= i; ++j) At(*rows, i, j) = 0;
    }
  }

  // Gates close the faintest weights of every row, up to `most` of its attention.
  void CloseFaint(double most, std::vector<double>* rows) {
    for (std::int64_t i = 0; i < T_; ++i) {
      std::vector<double> sorted;
      for (std::int64_t j = 0; j <= i; ++j) sorted.push_back(At(*rows, i, j));
      std::sort(sorted.begin(), sorted.end());
      double closed = 0, limit = -1;
      for (const double w : sorted) {
        if ((closed += w) > most) break;
        limit = w;
      }
      // Equal weights have equal gates.
      if (limit == sorted.back()) continue;
      for (std::int64_t j = 0; j <= i; ++j) {
        if (At(*rows, i, j) < limit) At(*rows, i, j) = 0;
      }
    }
  }

  RandomStream random_;
  std::int64_t T_ = 0;
  const std::vector<std::int32_t>* ids_ = nullptr;
};

}  // namespace clearhead
