// SPDX-License-Identifier: MIT
#include "features/written_rows.h"

#include <algorithm>

#include "core/threads.h"

namespace clearhead {

std::int64_t WrittenRows::CountRows(const FrozenPrompt& run,
                                    const std::vector<ActiveFeature>& features) {
  const auto L = static_cast<std::int64_t>(run.layers.size());
  std::int64_t rows = (L + 2) * run.length();
  for (const ActiveFeature& f : features) {
    rows += LastTarget(run.transcoder->config, f.layer) - f.layer;
  }
  return rows;
}

WrittenRows::WrittenRows(const FrozenPrompt& run, const std::vector<ActiveFeature>& features,
                         const GraphNodes& nodes)
    : length_(run.length()), width_(run.config().width) {
  const auto L = static_cast<std::int64_t>(run.layers.size());
  const std::int64_t T = length_, C = width_;
  // Nodes of every block in the order of their numbers.
  std::vector<std::vector<std::int64_t>> blocks(static_cast<std::size_t>((L + 1) * T));
  const auto block = [&](std::int64_t layer, std::int64_t position) -> auto& {
    return blocks[static_cast<std::size_t>((layer + 1) * T + position)];
  };
  for (std::size_t i = 0; i < features.size(); ++i) {
    const ActiveFeature& f = features[i];
    for (std::int64_t t = f.layer; t < LastTarget(run.transcoder->config, f.layer); ++t) {
      block(t, f.position).push_back(static_cast<std::int64_t>(i));
    }
  }
  for (std::int64_t p = 0; p < T; ++p) {
    for (std::int64_t l = 0; l < L; ++l) block(l, p).push_back(nodes.Error(l, p));
    block(-1, p).push_back(nodes.Token(p));
    if (nodes.positions) block(-1, p).push_back(nodes.Position(p));
  }
  begin_.push_back(0);
  for (const auto& list : blocks) {
    nodes_.insert(nodes_.end(), list.begin(), list.end());
    begin_.push_back(static_cast<std::int64_t>(nodes_.size()));
  }
  rows_ = Buffer<float>(begin_.back() * C);
  ParallelFor((L + 1) * T, [&](std::int64_t b) {
    const std::int64_t layer = b / T - 1, p = b % T;
    for (std::int64_t r = begin_[b]; r < begin_[b + 1]; ++r) {
      float* row = rows_.data() + r * C;
      const std::int64_t node = nodes_[r];
      if (node < nodes.features) {
        const ActiveFeature& f = features[node];
        DecoderRow(*run.transcoder, f.layer, f.feature, layer, row);
        for (std::int64_t i = 0; i < C; ++i) row[i] *= f.activation;
        continue;
      }
      const Buffer<float>& from = layer >= 0               ? run.layers[layer].error
                                  : node == nodes.Token(p) ? run.tokens
                                                           : run.positions;
      std::copy_n(from.data() + p * C, C, row);
    }
  });
}

WrittenRows::Block WrittenRows::At(std::int64_t layer, std::int64_t position) const {
  const std::int64_t b = (layer + 1) * length_ + position;
  return {begin_[b + 1] - begin_[b], rows_.data() + begin_[b] * width_, nodes_.data() + begin_[b]};
}

}  // namespace clearhead
