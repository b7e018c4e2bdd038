// SPDX-License-Identifier: MIT
// How the values of a ParameterBlock are shared out among the ranks of a run. They are cut into
// buckets, which travel one by one as soon as their gradients are complete, and every rank owns its
// share of each bucket: its moments, its update. One rank owns the one bucket there is.
#pragma once

#include <cstdint>
#include <vector>

#include "core/communicator.h"

namespace clearhead {

// A run of values that are stepped alike and whose gradients are complete at the same time.
struct ParameterRun {
  std::int64_t size = 0;
  bool decays = false;
  std::int64_t stage = 0;  // backward completes them in this order
  float rate = 1.0f;       // as a share of the step's
};

struct GradientBucket {
  std::int64_t first = 0, size = 0;
  std::int64_t stage = 0;  // the last of its values
};

// Buckets of at most `largest` values, in the order of the values; runs that are small go together.
std::vector<GradientBucket> CutBuckets(const std::vector<ParameterRun>& runs, std::int64_t largest);

// A piece of what a rank owns: values that are stepped alike.
struct OwnedPiece {
  std::int64_t at = 0;     // in the values
  std::int64_t owned = 0;  // in what the rank owns, piece after piece
  std::int64_t size = 0;
  bool decays = false;
  float rate = 1.0f;
};

std::vector<OwnedPiece> CutOwned(const std::vector<ParameterRun>& runs,
                                 const std::vector<GradientBucket>& buckets,
                                 const Communicator& ranks);

}  // namespace clearhead
