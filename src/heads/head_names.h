// SPDX-License-Identifier: MIT
// What a head does, in words. docs/heads.md says how the names are found.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heads/head_statistics.h"

namespace clearhead {

enum class HeadKind {
  kFirstToken,
  kSelf,
  kPreviousToken,
  kOffset,  // a fixed offset from 2 on
  kInduction,
  kDuplicateToken,
  kStripes,    // columns that many queries share
  kDiffuse,    // spread over many keys
  kFragments,  // pieces of diagonals at changing offsets
  kHybrid,     // two or more of the above
  kNearEmpty,
  kOther,  // sharp, but none of the above
};
inline constexpr int kHeadKinds = static_cast<int>(HeadKind::kOther) + 1;

std::string_view KindName(HeadKind kind);  // "first-token", ...

struct HeadPart {
  HeadKind kind = HeadKind::kOther;
  double score = 0;  // share of the attention that the pattern explains
};

struct HeadName {
  HeadKind kind = HeadKind::kOther;
  std::string name;                // "offset-3 diagonal", "hybrid (first-token + previous-token)"
  double score = 0;                // of the kind; of a hybrid, the sum over its parts, at most 1
  double margin = 0;               // to the strongest pattern that is not in the name; 0: a toss-up
  std::string sentence;            // one plain sentence
  std::int64_t offset = 0;         // of kOffset
  std::vector<HeadPart> parts;     // of a hybrid, strongest first; of others, the kind itself
  std::vector<HeadPart> evidence;  // every pattern with its score, strongest first
};

HeadName NameHead(const HeadStatistics& statistics);

}  // namespace clearhead
