// SPDX-License-Identifier: MIT
// What every source writes, MLP output by MLP output and position by position: activation times
// decoder row for features, the error itself, and the embeddings. Edges are products of these rows
// with the targets' gradients, so they are gathered from the files once for each prompt.
#pragma once

#include <cstdint>
#include <vector>

#include "features/graph_nodes.h"

namespace clearhead {

class WrittenRows {
 public:
  WrittenRows(const FrozenPrompt& run, const std::vector<ActiveFeature>& features,
              const GraphNodes& nodes);

  // The rows [count, C] that are written at `position` into the MLP output of `layer`, or into the
  // first stream (layer -1), and the node of each.
  struct Block {
    std::int64_t count;
    const float* rows;
    const std::int64_t* nodes;
  };
  Block At(std::int64_t layer, std::int64_t position) const;

  // What it takes: 4 bytes for each value.
  static std::int64_t CountRows(const FrozenPrompt& run,
                                const std::vector<ActiveFeature>& features);

 private:
  std::int64_t length_, width_;
  std::vector<std::int64_t> begin_;  // of block (layer + 1) * T + position
  std::vector<std::int64_t> nodes_;
  Buffer<float> rows_;
};

}  // namespace clearhead
