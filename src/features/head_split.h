// SPDX-License-Identifier: MIT
// Which heads carry an edge: an exact split at every attention layer. With u the source's change of
// the stream in front of layer l and b the target's gradient behind its attention,
//
//   pairs[l,h,q,k] = A_h[q,k] (before(u(k)) W_V) W_O . b(q)     all paths before and after
//   heads[l,h]     = their sum
//   bypass[l]      = sum over positions of u . b                goes round attention l
//   later[l]       = what the source writes at MLP outputs >= l
//   earlier[l]     = what ends in targets in front of attention l (groups of targets only)
//   heads + bypass + later + earlier = edge, at every l
//
// and by the number of attention steps: direct (none), one_hop[l,h] (one, from the key's position
// to the query's through that head, everything else round attention), multi_hop (the remainder).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "features/stream_vectors.h"

namespace clearhead {

struct HeadSplit {
  double edge = 0.0;
  std::vector<double> heads, one_hop;          // [L,H]
  std::vector<double> bypass, later, earlier;  // [L]
  double direct = 0.0, multi_hop = 0.0;
  Buffer<float> pairs;  // [L,H,T,T], if asked for

  double one_hop_sum() const;
};

HeadSplit SplitEdge(const FrozenPrompt& prompt, const StreamVectors& source,
                    const StreamVectors& target, std::int64_t query, std::int64_t key,
                    bool keep_pairs = false);

// one_hop of every source at the key with every target at the query: [L,H,targets,sources]. All
// sources write at `key`, all targets read at `query`.
Buffer<float> OneHopOfAll(const FrozenPrompt& prompt, std::span<const StreamVectors> sources,
                          std::span<const StreamVectors> targets, std::int64_t query,
                          std::int64_t key);

// What the target would lose if the attention weight at (query, key) of a head were 0 and nothing
// else changed: all that passes there, biases and earlier layers' part included. [L,H]; for several
// heads it adds up as long as query and key differ.
std::vector<double> CellEffects(const FrozenPrompt& prompt, const StreamVectors& target,
                                std::int64_t query, std::int64_t key);

// Indices of values from the largest magnitude down, and how many of the first it takes until their
// magnitudes reach a share of the sum of all.
std::vector<std::int64_t> RankByMagnitude(std::span<const double> values);
std::int64_t CountForShare(std::span<const double> values, double share);
std::int64_t CountNonzero(std::span<const double> values);

}  // namespace clearhead
