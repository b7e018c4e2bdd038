// SPDX-License-Identifier: MIT
#include "heads/head_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace clearhead {
namespace {

constexpr double kEmptyMass = 0.05;  // attention per query below which a head is near-empty
constexpr double kLeastScore = 0.3;  // below, a pattern explains nothing
constexpr double kPartOfTop = 0.5;   // a part of a hybrid has half the score of the strongest
constexpr double kLeastPart = 0.2;
constexpr std::int64_t kTokenQueries = 3;  // queries with telling targets, at least
constexpr double kSpreadKeys = 4.0;  // effective keys of a head that is spread rather than sharp

double& ScoreOf(std::vector<HeadPart>& parts, HeadKind kind) {
  const auto part =
      std::find_if(parts.begin(), parts.end(), [&](const HeadPart& p) { return p.kind == kind; });
  Check(part != parts.end(), "every pattern has a score");
  return part->score;
}

// A pattern of tokens and a pattern of places can be the same cells of one input (a text repeated
// after n tokens: induction is the fixed offset n - 1). The one that explains clearly more queries
// is the better explanation; else the tokens are, since they explain the places.
void SettleOverlap(const HeadStatistics& s, HeadKind token_kind, const TokenEvidence& evidence,
                   std::vector<HeadPart>* scores) {
  double& token = ScoreOf(*scores, token_kind);
  for (const HeadKind kind : {HeadKind::kOffset, HeadKind::kStripes, HeadKind::kFragments}) {
    double& place = ScoreOf(*scores, kind);
    if (place < kPartOfTop * token) continue;
    const std::int64_t queries = kind == HeadKind::kOffset ? s.evidence.offset_queries : s.queries;
    const bool explains_more =
        place * static_cast<double>(queries) >= 1.5 * token * static_cast<double>(evidence.queries);
    if (!explains_more) {
      place = 0.0;
    } else if (place >= token - 0.1) {
      token = 0.0;
    }
  }
}

double TargetScoreOf(const TokenEvidence& evidence) {
  return evidence.targets.Score(evidence.diffuse.Score(0));
}

// Enough targets for the score to be no accident: half a deviation of a coin above the least.
bool IsEvident(const TokenEvidence& evidence) {
  if (evidence.queries < kTokenQueries) return false;
  const double doubt = 0.5 / std::sqrt(static_cast<double>(evidence.queries));
  return TargetScoreOf(evidence) - doubt >= kLeastScore;
}

std::vector<HeadPart> Scores(const HeadStatistics& s) {
  const PatternEvidence& e = s.evidence;
  const double spread = e.diffuse.Score(0);
  std::vector<HeadPart> scores = {{HeadKind::kFirstToken, e.first.Score(spread)},
                                  {HeadKind::kSelf, e.self.Score(spread)},
                                  {HeadKind::kPreviousToken, e.previous.Score(spread)},
                                  {HeadKind::kOffset, e.offset.Score(spread)},
                                  {HeadKind::kInduction, 0.0},
                                  {HeadKind::kDuplicateToken, 0.0},
                                  {HeadKind::kStripes, e.stripes.Score(spread)},
                                  {HeadKind::kDiffuse, spread},
                                  {HeadKind::kFragments, e.fragments.Score(spread)}};
  // The stronger of the two token patterns, where there is evidence; what the head does on the same
  // queries competes with it, what it does on queries without a target does not.
  const bool induction = TargetScoreOf(e.induction) >= TargetScoreOf(e.duplicate);
  const TokenEvidence& token = induction ? e.induction : e.duplicate;
  const HeadKind kind = induction ? HeadKind::kInduction : HeadKind::kDuplicateToken;
  const HeadKind other = induction ? HeadKind::kDuplicateToken : HeadKind::kInduction;
  if (IsEvident(token)) {
    ScoreOf(scores, kind) = TargetScoreOf(token);
    SettleOverlap(s, kind, token, &scores);
    if (ScoreOf(scores, kind) > 0) {
      const double spread_here = token.diffuse.Score(0);
      ScoreOf(scores, HeadKind::kFirstToken) = token.first.Score(spread_here);
      ScoreOf(scores, HeadKind::kSelf) = token.self.Score(spread_here);
      ScoreOf(scores, HeadKind::kPreviousToken) = token.previous.Score(spread_here);
      ScoreOf(scores, HeadKind::kDiffuse) = spread_here;
      const TokenEvidence& second = induction ? e.duplicate : e.induction;
      if (IsEvident(second)) ScoreOf(scores, other) = TargetScoreOf(second);
    }
  }
  std::stable_sort(scores.begin(), scores.end(),
                   [](const HeadPart& a, const HeadPart& b) { return a.score > b.score; });
  return scores;
}

std::string Called(HeadKind kind, std::int64_t offset) {
  return kind == HeadKind::kOffset ? fmt::format("offset-{} diagonal", offset)
                                   : std::string(KindName(kind));
}

// "it looks at ..."
std::string Does(HeadKind kind, std::int64_t offset) {
  switch (kind) {
    case HeadKind::kFirstToken:
      return "rests on the first token";
    case HeadKind::kSelf:
      return "looks at the token itself";
    case HeadKind::kPreviousToken:
      return "looks at the token before";
    case HeadKind::kOffset:
      return fmt::format("looks {} tokens back", offset);
    case HeadKind::kInduction:
      return "looks at what followed an earlier copy of the token";
    case HeadKind::kDuplicateToken:
      return "looks at earlier copies of the token";
    case HeadKind::kStripes:
      return "looks at the same few tokens from many places";
    case HeadKind::kDiffuse:
      return "spreads over many tokens";
    case HeadKind::kFragments:
      return "follows pieces of diagonals at changing distances";
    default:
      return "follows no pattern of the list";
  }
}

int Percent(double share) { return static_cast<int>(std::lround(share * 100)); }

std::string Sentence(const HeadStatistics& s, const HeadName& name) {
  if (name.kind == HeadKind::kNearEmpty) {
    if (s.empty) return "Empty: no gate is open.";
    std::string rest;
    if (!name.evidence.empty() && name.evidence[0].score >= kLeastScore) {
      rest = fmt::format(", and what is left {}",
                         Does(name.evidence[0].kind, s.evidence.offset_distance));
    }
    return fmt::format("Nearly empty: {:.2g} % of full attention{}.", 100 * s.mass, rest);
  }
  if (s.queries == 0) return "One token only, which can look at nothing but itself.";
  if (name.kind == HeadKind::kOther) {
    return fmt::format(
        "Looks sharply ({:.1f} keys at a time) at tokens that no pattern of the list explains.",
        s.effective_keys);
  }
  std::string text;
  for (const HeadPart& part : name.parts) {
    if (!text.empty()) text += &part == &name.parts.back() ? " and " : ", ";
    text += fmt::format("{} ({} %)", Does(part.kind, name.offset), Percent(part.score));
  }
  text[0] = static_cast<char>(text[0] - 'a' + 'A');
  if (name.kind == HeadKind::kDiffuse) text += fmt::format(", {:.1f} at a time", s.effective_keys);
  if (name.kind == HeadKind::kInduction || name.kind == HeadKind::kDuplicateToken) {
    const double rest = s.evidence.first.Score(s.evidence.diffuse.Score(0));
    if (rest >= kLeastScore) text += ", and rests on the first token elsewhere";
  }
  if (s.mass < 0.9)
    text += fmt::format("; its gates leave {} % of full attention", Percent(s.mass));
  return text + ".";
}

}  // namespace

std::string_view KindName(HeadKind kind) {
  constexpr std::string_view kNames[kHeadKinds] = {
      "first-token",     "self",    "previous-token", "offset diagonal",      "induction",
      "duplicate-token", "stripes", "diffuse",        "fragmented diagonals", "hybrid",
      "near-empty",      "other"};
  return kNames[static_cast<int>(kind)];
}

HeadName NameHead(const HeadStatistics& s) {
  HeadName name;
  name.evidence = Scores(s);
  name.offset = s.evidence.offset_distance;
  const std::vector<HeadPart>& ranked = name.evidence;
  const double top = ranked[0].score;
  double next = 0;  // the strongest pattern that is not in the name
  if (s.mass < kEmptyMass) {
    name.kind = HeadKind::kNearEmpty;
    name.score = 1.0 - s.mass;
    next = s.mass / kEmptyMass;
  } else if (s.queries == 0) {
    name.kind = HeadKind::kSelf;
    name.score = next = s.mass;
    name.parts = {{HeadKind::kSelf, s.mass}};
  } else if (top < kLeastScore) {
    // Nothing explains it: spread out, or sharp on something else.
    const double spread = 1.0 - s.mean_peak / s.mass;
    name.kind = s.effective_keys >= kSpreadKeys ? HeadKind::kDiffuse : HeadKind::kOther;
    name.score = name.kind == HeadKind::kDiffuse ? std::max(0.0, spread) : 1.0 - top;
    next = top;
    name.parts = {{name.kind, name.score}};
  } else {
    const double least = std::max(kLeastPart, kPartOfTop * top);
    for (const HeadPart& part : ranked) {
      if (part.score >= least) {
        name.parts.push_back(part);
        name.score += part.score;
      } else {
        next = std::max(next, part.score);
      }
    }
    name.kind = name.parts.size() == 1 ? name.parts[0].kind : HeadKind::kHybrid;
    next += name.score - name.parts.back().score;  // so that the margin is that of the weakest part
  }
  name.margin = std::max(0.0, name.score - next);
  name.score =
      std::min(1.0, name.score);  // parts may share cells: the own token is also a near one
  name.name = Called(name.kind, name.offset);
  if (name.kind == HeadKind::kHybrid) {
    std::vector<std::string> parts;
    for (const HeadPart& part : name.parts) parts.push_back(Called(part.kind, name.offset));
    name.name = fmt::format("hybrid ({})", fmt::join(parts, " + "));
  }
  name.sentence = Sentence(s, name);
  return name;
}

}  // namespace clearhead
