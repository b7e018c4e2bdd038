// SPDX-License-Identifier: MIT
// A run of a model that hands on what features read, layer by layer.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "core/error.h"
#include "features/transcoder.h"
#include "model/hooks.h"

namespace clearhead {

// Calls see(layer, x) with x[R,C], what the encoder of `layer` reads, while the pass runs.
class MlpInputHooks final : public Hooks {
 public:
  using See = std::function<void(std::int64_t layer, const float* x)>;

  MlpInputHooks(Tap reads, See see) : reads_(reads), see_(std::move(see)) {}

  bool Wants(TapId id) const override { return id.tap == reads_; }
  void Visit(TapId id, const TensorView<float>& value) override {
    Check(value.contiguous(), "what an MLP reads lies in one piece");
    see_(id.layer, value.data);
  }

 private:
  Tap reads_;
  See see_;
};

// What fires of features [first, first + count) of a layer, columns counted from `first`.
SparseRows EncodePart(const Transcoder& transcoder, std::int64_t layer, std::int64_t first,
                      std::int64_t count, std::int64_t rows, const float* x);

}  // namespace clearhead
