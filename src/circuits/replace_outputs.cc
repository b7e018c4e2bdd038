// SPDX-License-Identifier: MIT
#include "circuits/replace_outputs.h"

#include <algorithm>

namespace clearhead {
namespace {

void Overwrite(const float* from, std::int64_t count, float* to) {
  if (from == nullptr) {
    std::fill(to, to + count, 0.0f);
  } else {
    std::copy(from, from + count, to);
  }
}

}  // namespace

const float* Replacement::Z(std::int64_t layer, std::int64_t row, std::int64_t width) const {
  if (z == nullptr) return nullptr;
  return (*z)[static_cast<std::size_t>(layer)].data() + (per_row ? row * width : 0);
}

const float* Replacement::MlpOut(std::int64_t layer, std::int64_t row, std::int64_t width) const {
  if (mlp_out == nullptr) return nullptr;
  return (*mlp_out)[static_cast<std::size_t>(layer)].data() + (per_row ? row * width : 0);
}

ReplaceOutputs::ReplaceOutputs(const ResidualGraph& graph, std::span<const NodeSet> replaced,
                               const Replacement& replacement, std::int64_t length,
                               std::int64_t first)
    : graph_(graph),
      replaced_(replaced),
      replacement_(replacement),
      length_(length),
      first_(first) {}

bool ReplaceOutputs::Wants(TapId id) const {
  if (id.tap != Tap::kZ && id.tap != Tap::kMlpOut) return false;
  const std::int64_t first = id.tap == Tap::kZ ? graph_.Head(id.layer, 0) : graph_.Mlp(id.layer);
  const std::int64_t count = id.tap == Tap::kZ ? graph_.heads() : 1;
  return std::any_of(replaced_.begin(), replaced_.end(), [&](const NodeSet& set) {
    return std::find(set.begin() + first, set.begin() + first + count, true) !=
           set.begin() + first + count;
  });
}

void ReplaceOutputs::Visit(TapId id, const TensorView<float>& value) {
  const std::int64_t H = graph_.heads();
  const bool heads = id.tap == Tap::kZ;  // [sets*B,n,H,D], else [sets*B,n,C]
  const std::int64_t D = value.shape[heads ? 3 : 2], C = heads ? H * D : D;
  const std::int64_t B = value.shape[0] / static_cast<std::int64_t>(replaced_.size());
  for (std::int64_t s = 0; s < value.shape[0]; ++s) {
    const NodeSet& replaced = replaced_[static_cast<std::size_t>(s / B)];
    for (std::int64_t t = 0; t < value.shape[1]; ++t) {
      const std::int64_t row = s % B * length_ + first_ + t;
      float* to = value.data + s * value.strides[0] + t * value.strides[1];
      if (!heads) {
        if (!replaced[static_cast<std::size_t>(graph_.Mlp(id.layer))]) break;
        Overwrite(replacement_.MlpOut(id.layer, row, C), C, to);
        continue;
      }
      const float* from = replacement_.Z(id.layer, row, C);
      for (std::int64_t h = 0; h < H; ++h) {
        if (!replaced[static_cast<std::size_t>(graph_.Head(id.layer, h))]) continue;
        Overwrite(from == nullptr ? nullptr : from + h * D, D, to + h * value.strides[2]);
      }
    }
  }
}

}  // namespace clearhead
