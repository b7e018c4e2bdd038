// SPDX-License-Identifier: MIT
// Hooks that replace the outputs of chosen heads and MLPs by those of another run, by a mean, or by
// zero.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "circuits/residual_graph.h"
#include "core/buffer.h"
#include "model/hooks.h"

namespace clearhead {

using NodeSet = std::vector<bool>;  // by node of the residual graph

// What outputs become: rows [B*T, C] of each layer, or one row for all positions, or nothing (0).
struct Replacement {
  const std::vector<Buffer<float>>* z = nullptr;
  const std::vector<Buffer<float>>* mlp_out = nullptr;
  bool per_row = true;

  // The replacing row, null for zeros.
  const float* Z(std::int64_t layer, std::int64_t row, std::int64_t width) const;
  const float* MlpOut(std::int64_t layer, std::int64_t row, std::int64_t width) const;
};

// The pass holds positions first .. first + n - 1 of sequences of `length`: those of one batch,
// once for every set of replaced nodes.
class ReplaceOutputs : public Hooks {
 public:
  ReplaceOutputs(const ResidualGraph& graph, std::span<const NodeSet> replaced,
                 const Replacement& replacement, std::int64_t length, std::int64_t first);

  bool Wants(TapId id) const override;
  bool Changes(TapId id) const override { return Wants(id); }
  void Visit(TapId id, const TensorView<float>& value) override;

 private:
  const ResidualGraph& graph_;
  std::span<const NodeSet> replaced_;
  const Replacement& replacement_;
  std::int64_t length_, first_;
};

}  // namespace clearhead
