// SPDX-License-Identifier: MIT
// Attention maps small enough to draw.
#pragma once

#include <cstdint>
#include <vector>

#include "heads/attention_source.h"
#include "heads/head_id.h"

namespace clearhead {

// A head's attention on one sequence of `length` tokens. Cell (y, x) is the largest weight of
// queries y*block .. and keys x*block .., so that a single open edge stays visible.
struct HeadMap {
  HeadId head;
  std::int64_t length = 0;
  std::int64_t block = 1;      // queries and keys per cell; the last cell may hold fewer
  std::int64_t cells = 0;      // a side: ceil(length / block)
  std::vector<float> weights;  // [cells, cells]
};

// map [T,T] reduced to at most `max_cells` a side; unreduced if it fits.
HeadMap ReduceMap(HeadId head, const float* map, std::int64_t length, std::int64_t max_cells);

// The maps of the chosen heads, in their order. Holds one layer of the source at a time.
std::vector<HeadMap> CollectMaps(const AttentionSource& source, std::size_t sequence,
                                 const std::vector<HeadId>& heads, std::int64_t max_cells);

}  // namespace clearhead
