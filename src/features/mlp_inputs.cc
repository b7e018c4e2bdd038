// SPDX-License-Identifier: MIT
#include "features/mlp_inputs.h"

namespace clearhead {
namespace {

SparseRows ColumnsOf(const SparseRows& all, std::int64_t first, std::int64_t count) {
  SparseRows part;
  for (std::int64_t r = 0; r < all.rows(); ++r) {
    for (std::int64_t e = all.begin[r]; e < all.begin[r + 1]; ++e) {
      if (all.column[e] < first || all.column[e] >= first + count) continue;
      part.column.push_back(static_cast<std::int32_t>(all.column[e] - first));
      part.value.push_back(all.value[e]);
    }
    part.begin.push_back(part.size());
  }
  return part;
}

// The transcoder with these features of one layer alone; the other layers must not be used.
Transcoder WithFeatures(const Transcoder& transcoder, std::int64_t layer, std::int64_t first,
                        std::int64_t count) {
  Transcoder part = transcoder;
  part.config.features = count;
  TranscoderLayer& l = part.layers[static_cast<std::size_t>(layer)];
  l.encoder = OutputsOf(l.encoder, first, count);
  if (l.threshold != nullptr) l.threshold += first;
  for (DecoderRows& rows : l.writes) rows.rows = rows.rows + first * rows.stride;
  return part;
}

}  // namespace

SparseRows EncodePart(const Transcoder& transcoder, std::int64_t layer, std::int64_t first,
                      std::int64_t count, std::int64_t rows, const float* x) {
  if (count == transcoder.config.features) return Encode(transcoder, layer, rows, x);
  if (transcoder.config.activation == FeatureActivation::kTopK) {
    // They compete with all of their layer.
    return ColumnsOf(Encode(transcoder, layer, rows, x), first, count);
  }
  return Encode(WithFeatures(transcoder, layer, first, count), layer, rows, x);
}

}  // namespace clearhead
