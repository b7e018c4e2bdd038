// SPDX-License-Identifier: MIT
#include "features/graph_nodes.h"

namespace clearhead {

std::vector<ActiveFeature> ActiveFeaturesOf(const FrozenPrompt& run) {
  std::vector<ActiveFeature> features;
  for (std::size_t l = 0; l < run.layers.size(); ++l) {
    const SparseRows& active = run.layers[l].active;
    for (std::int64_t p = 0; p < active.rows(); ++p) {
      for (std::int64_t e = active.begin[p]; e < active.begin[p + 1]; ++e) {
        features.push_back({static_cast<std::int32_t>(l), static_cast<std::int32_t>(p),
                            active.column[e], active.value[e]});
      }
    }
  }
  return features;
}

NodeKind GraphNodes::KindOf(std::int64_t node) const {
  if (node < features) return NodeKind::kFeature;
  if (node < Token(0)) return NodeKind::kError;
  if (node < Token(length)) return NodeKind::kToken;
  if (node < Bias()) return NodeKind::kPosition;
  return node < columns() ? NodeKind::kBias : NodeKind::kLogit;
}

}  // namespace clearhead
