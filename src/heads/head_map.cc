// SPDX-License-Identifier: MIT
#include "heads/head_map.h"

#include <algorithm>

#include "core/error.h"
#include "core/threads.h"

namespace clearhead {

HeadMap ReduceMap(HeadId head, const float* map, std::int64_t length, std::int64_t max_cells) {
  Check(length >= 1 && max_cells >= 1, "a map has at least one cell");
  HeadMap result{.head = head, .length = length};
  result.block = (length + max_cells - 1) / max_cells;
  result.cells = (length + result.block - 1) / result.block;
  result.weights.assign(static_cast<std::size_t>(result.cells * result.cells), 0.0f);
  for (std::int64_t query = 0; query < length; ++query) {
    const float* row = map + query * length;
    float* out = result.weights.data() + query / result.block * result.cells;
    for (std::int64_t cell = 0; cell * result.block <= query; ++cell) {
      const std::int64_t first = cell * result.block;
      const std::int64_t end = std::min(first + result.block, query + 1);
      out[cell] = std::max(out[cell], *std::max_element(row + first, row + end));
    }
  }
  return result;
}

std::vector<HeadMap> CollectMaps(const AttentionSource& source, std::size_t sequence,
                                 const std::vector<HeadId>& heads, std::int64_t max_cells) {
  std::vector<HeadMap> maps(heads.size());
  const std::int64_t T = source.sequences.at(sequence).length;
  source.visit(sequence, [&](std::int64_t layer, const float* weights) {
    ParallelFor(static_cast<std::int64_t>(heads.size()), [&](std::int64_t i) {
      const HeadId id = heads[static_cast<std::size_t>(i)];
      if (id.layer != layer) return;
      maps[static_cast<std::size_t>(i)] = ReduceMap(id, weights + id.head * T * T, T, max_cells);
    });
  });
  return maps;
}

}  // namespace clearhead
