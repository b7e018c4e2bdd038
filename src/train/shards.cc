// SPDX-License-Identifier: MIT
#include "train/shards.h"

#include <algorithm>

namespace clearhead {

std::vector<GradientBucket> CutBuckets(const std::vector<ParameterRun>& runs,
                                       std::int64_t largest) {
  std::vector<GradientBucket> buckets;
  std::int64_t at = 0;
  for (const ParameterRun& run : runs) {
    GradientBucket* last = buckets.empty() ? nullptr : &buckets.back();
    if (last != nullptr && last->size + run.size <= largest) {
      last->size += run.size;
      last->stage = std::max(last->stage, run.stage);
    } else {
      const std::int64_t pieces = std::max<std::int64_t>(1, (run.size + largest - 1) / largest);
      for (std::int64_t i = 0; i < pieces; ++i) {
        const std::int64_t first = run.size * i / pieces, end = run.size * (i + 1) / pieces;
        buckets.push_back({at + first, end - first, run.stage});
      }
    }
    at += run.size;
  }
  return buckets;
}

std::vector<OwnedPiece> CutOwned(const std::vector<ParameterRun>& runs,
                                 const std::vector<GradientBucket>& buckets,
                                 const Communicator& ranks) {
  std::vector<OwnedPiece> pieces;
  std::int64_t owned = 0;
  for (const GradientBucket& bucket : buckets) {
    const RankShare share = ranks.Share(bucket.size);
    const std::int64_t first = bucket.first + share.first, last = bucket.first + share.last;
    std::int64_t run_first = 0;
    for (const ParameterRun& run : runs) {
      const std::int64_t from = std::max(first, run_first);
      const std::int64_t to = std::min(last, run_first + run.size);
      run_first += run.size;
      if (from >= to) continue;
      OwnedPiece* before = pieces.empty() ? nullptr : &pieces.back();
      if (before != nullptr && before->at + before->size == from && before->decays == run.decays &&
          before->rate == run.rate) {
        before->size += to - from;
      } else {
        pieces.push_back({from, owned, to - from, run.decays, run.rate});
      }
      owned += to - from;
    }
  }
  return pieces;
}

}  // namespace clearhead
