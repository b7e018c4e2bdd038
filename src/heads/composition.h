// SPDX-License-Identifier: MIT
// Composition: how strongly a head reads what an earlier head wrote, from the weights alone.
//   score = ||W_OV(from) M(to)||_F / (||W_OV(from)||_F ||M(to)||_F)
// with W_OV = W_V W_O, W_QK = W_Q W_K^T (rows are vectors of the residual stream) and
//   M = W_QK (Q: the later query reads it), W_QK^T (K: the key), W_OV (V: the value);
// 0 unless from.layer < to.layer. Raw weights: no norm is folded in. Random matrices score about
// 1/sqrt(width); their mean is the baseline that is subtracted for display.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "heads/head_id.h"
#include "model/model.h"

namespace clearhead {

enum class CompositionKind { kQuery, kKey, kValue };
inline constexpr int kCompositionKinds = 3;
std::string_view CompositionName(CompositionKind kind);  // "Q", "K", "V"

struct CompositionPair {
  CompositionKind kind = CompositionKind::kQuery;
  HeadId from, to;
  double score = 0;  // baseline not subtracted
};

struct CompositionCount {
  std::int64_t pairs = 0;   // heads of different layers
  std::int64_t strong = 0;  // with a score of at least twice the baseline
  double mean_excess = 0;   // mean of score - baseline
};

struct Composition {
  std::int64_t layers = 0, heads = 0;
  double baseline = 0, baseline_deviation = 0;  // of random matrices of the same shapes
  std::array<std::vector<float>, kCompositionKinds> scores;  // [from][to], L*H each
  std::array<CompositionCount, kCompositionKinds> counts;
  std::vector<CompositionPair> strongest;  // of all kinds, at most kStrongest

  static constexpr std::size_t kStrongest = 20;
};

Composition ComposeHeads(const Model& model, std::uint64_t seed);

}  // namespace clearhead
