// SPDX-License-Identifier: MIT
// A rank's part of the sequences of every pass, and of what it counts. A batch is the whole run's:
// however many ranks share it, the samples of a step are the same.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "train/step.h"

namespace clearhead {

struct RankBatch {
  std::int64_t first = 0;  // of the pass's sequences
  std::int64_t batch = 0;
  double weight = 1.0;  // of this rank's means in those of all
};

// Throws Error if a rank would have nothing to do.
inline RankBatch RankBatchOf(std::int64_t batch, const Communicator* ranks) {
  if (ranks == nullptr || ranks->alone()) return {0, batch, 1.0};
  if (batch < ranks->size()) {
    Fail("a batch of {} cannot be shared by {} ranks; give at least one sequence to each (--batch)",
         batch, ranks->size());
  }
  const RankShare share = ranks->Share(batch);
  return {share.first, share.size(),
          static_cast<double>(share.size()) / static_cast<double>(batch)};
}

// Sums over all ranks. The first rank that brought something that is no finite number, or -1.
inline int SumOverRanks(Communicator* ranks, std::span<double> values) {
  if (ranks == nullptr || ranks->alone()) return -1;
  const std::size_t count = values.size();
  std::vector<double> all(count * static_cast<std::size_t>(ranks->size()));
  ranks->AllGather(values, all);
  int broken = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (broken < 0 && !std::isfinite(all[i])) broken = static_cast<int>(i / count);
    values[i % count] = i < count ? all[i] : values[i % count] + all[i];
  }
  return broken;
}

}  // namespace clearhead
