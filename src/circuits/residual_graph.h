// SPDX-License-Identifier: MIT
// The residual graph of a model: who writes to the stream, who reads from it. Numbers and names for
// its nodes and edges, as EAP-IG has them.
//
//   nodes     input (the embeddings), a<l>.h<h>, m<l>, logits; numbered in the order they run
//   readers   a<l>.h<h><q>, <k>, <v>; m<l>; logits: the places with an input of their own
//   edge      (source, reader): what the source wrote, as the reader sees it
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"

namespace clearhead {

class ResidualGraph {
 public:
  explicit ResidualGraph(const ModelConfig& config);

  std::int64_t layers() const { return layers_; }
  std::int64_t heads() const { return heads_; }

  // Nodes. All but the logits are sources.
  std::int64_t node_count() const { return logits() + 1; }
  std::int64_t source_count() const { return logits(); }
  std::int64_t input() const { return 0; }
  std::int64_t Head(std::int64_t layer, std::int64_t head) const {
    return 1 + layer * (heads_ + 1) + head;
  }
  std::int64_t Mlp(std::int64_t layer) const { return Head(layer, heads_); }
  std::int64_t logits() const { return 1 + layers_ * (heads_ + 1); }
  bool IsHead(std::int64_t node) const;
  bool IsMlp(std::int64_t node) const;
  std::int64_t LayerOf(std::int64_t node) const;  // of heads and MLPs
  std::int64_t HeadOf(std::int64_t node) const;   // of heads
  std::vector<std::int64_t> AllHeads() const;
  std::vector<std::int64_t> AllMlps() const;

  // Readers; part 0, 1, 2 = queries, keys, values.
  std::int64_t reader_count() const { return LogitsReader() + 1; }
  std::int64_t HeadReader(std::int64_t layer, int part, std::int64_t head) const {
    return layer * (3 * heads_ + 1) + part * heads_ + head;
  }
  std::int64_t MlpReader(std::int64_t layer) const { return HeadReader(layer, 3, 0); }
  std::int64_t LogitsReader() const { return layers_ * (3 * heads_ + 1); }
  std::int64_t NodeOfReader(std::int64_t reader) const;
  // The reader sees sources 0 .. SourcesOf(reader) - 1.
  std::int64_t SourcesOf(std::int64_t reader) const;

  // Edges, reader by reader.
  std::int64_t edge_count() const { return first_edge_.back(); }
  std::int64_t Edge(std::int64_t source, std::int64_t reader) const {
    return first_edge_[static_cast<std::size_t>(reader)] + source;
  }
  std::int64_t ReaderOfEdge(std::int64_t edge) const;
  std::int64_t SourceOfEdge(std::int64_t edge) const;

  std::string NodeName(std::int64_t node) const;   // a5.h1
  std::string NodeLabel(std::int64_t node) const;  // L5H1, MLP5, input, logits
  std::string EdgeName(std::int64_t edge) const;   // m3->a9.h6<q>

 private:
  std::int64_t layers_, heads_;
  std::vector<std::int64_t> first_edge_;  // of every reader, and the total
};

}  // namespace clearhead
