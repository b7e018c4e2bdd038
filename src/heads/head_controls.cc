// SPDX-License-Identifier: MIT
#include "heads/head_controls.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {
namespace {

double EvidenceOf(const HeadName& name, HeadKind kind) {
  for (const HeadPart& part : name.evidence) {
    if (part.kind == kind) return part.score;
  }
  return 0.0;
}

}  // namespace

double ScoreOfName(const HeadResult& head, const HeadResult& other) {
  switch (head.name.kind) {
    case HeadKind::kNearEmpty:
      return std::max(0.0, 1.0 - other.statistics.mass);
    case HeadKind::kOther:
      return 1.0 - other.name.evidence[0].score;
    case HeadKind::kDiffuse:
      // A head that no pattern explains is called diffuse by how low its peaks are.
      if (head.name.score == EvidenceOf(head.name, HeadKind::kDiffuse)) break;
      if (other.statistics.mass <= 0.0) return 0.0;
      return std::max(0.0, 1.0 - other.statistics.mean_peak / other.statistics.mass);
    default:
      break;
  }
  double score = 0.0;
  for (const HeadPart& part : head.name.parts) {
    if (part.kind == HeadKind::kOffset && other.name.offset != head.name.offset) continue;
    score += EvidenceOf(other.name, part.kind);
  }
  return std::min(1.0, score);
}

std::vector<HeadControl> ControlNames(const ModelReport& report, const ModelReport& shuffled,
                                      const ModelReport& random) {
  Check(report.heads.size() == shuffled.heads.size() && !random.heads.empty(),
        "controls are of the model's own shape");
  std::vector<HeadControl> controls;
  for (std::size_t h = 0; h < report.heads.size(); ++h) {
    const HeadResult& head = report.heads[h];
    HeadControl& control = controls.emplace_back();
    control.shuffled = ScoreOfName(head, shuffled.heads[h]);
    for (const HeadResult& other : random.heads) {
      const double score = ScoreOfName(head, other);
      control.random_mean += score / static_cast<double>(random.heads.size());
      control.random_most = std::max(control.random_most, score);
    }
  }
  return controls;
}

std::vector<std::vector<std::int32_t>> ShuffledSequences(
    const std::vector<AttentionSequence>& sequences, std::uint64_t seed) {
  std::vector<std::vector<std::int32_t>> shuffled;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    std::vector<std::int32_t>& ids = shuffled.emplace_back(sequences[s].ids);
    for (std::size_t i = ids.size(); i > 2; --i) {  // Fisher and Yates, over all but the first
      const std::uint64_t draw = HashCoordinates(seed, {s, i});
      std::swap(ids[i - 1], ids[1 + draw % (i - 1)]);
    }
  }
  return shuffled;
}

}  // namespace clearhead
