// SPDX-License-Identifier: MIT
#include "circuits/residual_graph.h"

#include <fmt/format.h>

#include <algorithm>

namespace clearhead {

ResidualGraph::ResidualGraph(const ModelConfig& config)
    : layers_(config.layers), heads_(config.heads) {
  first_edge_.push_back(0);
  for (std::int64_t reader = 0; reader < reader_count(); ++reader) {
    first_edge_.push_back(first_edge_.back() + SourcesOf(reader));
  }
}

bool ResidualGraph::IsHead(std::int64_t node) const {
  return node > 0 && node < logits() && HeadOf(node) < heads_;
}

bool ResidualGraph::IsMlp(std::int64_t node) const {
  return node > 0 && node < logits() && HeadOf(node) == heads_;
}

std::int64_t ResidualGraph::LayerOf(std::int64_t node) const { return (node - 1) / (heads_ + 1); }
std::int64_t ResidualGraph::HeadOf(std::int64_t node) const { return (node - 1) % (heads_ + 1); }

std::vector<std::int64_t> ResidualGraph::AllHeads() const {
  std::vector<std::int64_t> nodes;
  for (std::int64_t node = 1; node < logits(); ++node) {
    if (IsHead(node)) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::int64_t> ResidualGraph::AllMlps() const {
  std::vector<std::int64_t> nodes;
  for (std::int64_t layer = 0; layer < layers_; ++layer) nodes.push_back(Mlp(layer));
  return nodes;
}

std::int64_t ResidualGraph::NodeOfReader(std::int64_t reader) const {
  if (reader == LogitsReader()) return logits();
  const std::int64_t layer = reader / (3 * heads_ + 1), within = reader % (3 * heads_ + 1);
  return within == 3 * heads_ ? Mlp(layer) : Head(layer, within % heads_);
}

std::int64_t ResidualGraph::SourcesOf(std::int64_t reader) const {
  const std::int64_t node = NodeOfReader(reader);
  // Heads of one layer run side by side: they see what ran before the first of them.
  return IsHead(node) ? Head(LayerOf(node), 0) : node;
}

std::int64_t ResidualGraph::ReaderOfEdge(std::int64_t edge) const {
  return std::upper_bound(first_edge_.begin(), first_edge_.end(), edge) - first_edge_.begin() - 1;
}

std::int64_t ResidualGraph::SourceOfEdge(std::int64_t edge) const {
  return edge - first_edge_[static_cast<std::size_t>(ReaderOfEdge(edge))];
}

std::string ResidualGraph::NodeName(std::int64_t node) const {
  if (node == input()) return "input";
  if (node == logits()) return "logits";
  if (IsMlp(node)) return fmt::format("m{}", LayerOf(node));
  return fmt::format("a{}.h{}", LayerOf(node), HeadOf(node));
}

std::string ResidualGraph::NodeLabel(std::int64_t node) const {
  if (IsMlp(node)) return fmt::format("MLP{}", LayerOf(node));
  if (IsHead(node)) return fmt::format("L{}H{}", LayerOf(node), HeadOf(node));
  return NodeName(node);
}

std::string ResidualGraph::EdgeName(std::int64_t edge) const {
  const std::int64_t reader = ReaderOfEdge(edge), node = NodeOfReader(reader);
  std::string name = NodeName(SourceOfEdge(edge)) + "->" + NodeName(node);
  if (IsHead(node)) {
    const std::int64_t part = reader % (3 * heads_ + 1) / heads_;
    name += fmt::format("<{}>", "qkv"[part]);
  }
  return name;
}

}  // namespace clearhead
