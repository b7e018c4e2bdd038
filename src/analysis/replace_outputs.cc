#include "analysis/replace_outputs.h"

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

ReplaceOutputs::ReplaceOutputs(const ResidualGraph& graph, const NodeSet& replaced,
                               const Replacement& replacement, std::int64_t length,
                               std::int64_t first)
    : graph_(graph),
      replaced_(replaced),
      replacement_(replacement),
      length_(length),
      first_(first) {}

bool ReplaceOutputs::ReplacesHeads(std::int64_t layer) const {
  const auto begin = replaced_.begin() + graph_.Head(layer, 0);
  return std::find(begin, begin + graph_.heads(), true) != begin + graph_.heads();
}

bool ReplaceOutputs::ReplacesMlp(std::int64_t layer) const {
  return replaced_[static_cast<std::size_t>(graph_.Mlp(layer))];
}

bool ReplaceOutputs::Wants(TapId id) const {
  if (id.tap == Tap::kZ) return ReplacesHeads(id.layer);
  return id.tap == Tap::kMlpOut && ReplacesMlp(id.layer);
}

void ReplaceOutputs::Visit(TapId id, const TensorView<float>& value) {
  const std::int64_t H = graph_.heads();
  const bool heads = id.tap == Tap::kZ;  // [B,n,H,D], else [B,n,C]
  const std::int64_t D = value.shape[heads ? 3 : 2], C = heads ? H * D : D;
  for (std::int64_t b = 0; b < value.shape[0]; ++b) {
    for (std::int64_t t = 0; t < value.shape[1]; ++t) {
      const std::int64_t row = b * length_ + first_ + t;
      float* to = value.data + b * value.strides[0] + t * value.strides[1];
      if (!heads) {
        Overwrite(replacement_.MlpOut(id.layer, row, C), C, to);
        continue;
      }
      const float* from = replacement_.Z(id.layer, row, C);
      for (std::int64_t h = 0; h < H; ++h) {
        if (!replaced_[static_cast<std::size_t>(graph_.Head(id.layer, h))]) continue;
        Overwrite(from == nullptr ? nullptr : from + h * D, D, to + h * value.strides[2]);
      }
    }
  }
}

}  // namespace clearhead
