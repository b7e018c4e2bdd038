// SPDX-License-Identifier: MIT
// Hooks that run a model with a transcoder beside it: what fires where, what it leaves over of the
// MLPs' outputs, and what happens when it replaces them or when features are changed.
//
// A feature that is changed from a to b adds (b - a) W_dec(t) to the MLP output of every layer t
// that it writes into. Later layers see that, and their features with them, unless the run is
// frozen (frozen_run.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "features/feature_intervention.h"
#include "features/frozen_run.h"
#include "features/transcoder.h"
#include "model/hooks.h"

namespace clearhead {

struct FeatureRunOptions {
  // By layer: the MLP's output becomes the reconstruction. Empty: nowhere.
  std::vector<bool> replaced = {};
  // What the reconstruction leaves over of the MLP's output is added to it again.
  bool keep_errors = false;
  // Positions before this one keep their MLP outputs: training left them out.
  std::int64_t first_position = 0;
  std::vector<FeatureIntervention> interventions = {};
  const FrozenRun* frozen = nullptr;
  bool keep_active = true;    // what fires in every layer, also where nothing is replaced
  bool keep_pre = false;      // pre-activations [R,F]
  bool keep_outputs = false;  // reconstructions and errors [R,C]
  // Passes follow each other (a cache holds what was before): each goes on where the last ended.
  bool continues = false;
};

struct FeatureLayerValues {
  Buffer<float> pre, reconstruction, error;
};

// Positions [B,T] are rows. Valid for passes of one shape, or with `continues` for a text that
// grows.
class FeatureRun final : public Hooks {
 public:
  // `inner` sees every value it wants too: what the MLPs read before the features do, what they
  // write after it was replaced. Both references and `inner` must outlive this.
  FeatureRun(const Model& model, const Transcoder& transcoder, FeatureRunOptions options,
             Hooks* inner = nullptr);

  bool Wants(TapId id) const override;
  void Visit(TapId id, const TensorView<float>& value) override;
  bool Changes(TapId id) const override;
  float* Storage(TapId id, const Shape& shape) override;
  bool WantsGradient(TapId id) const override;
  void VisitGradient(TapId id, const TensorView<float>& gradient) override;

  // Of the last pass, by layer: what fires, after interventions.
  const std::vector<SparseRows>& active() const { return active_; }
  // `error` is the MLP's output less the reconstruction from what fires by itself.
  const std::vector<FeatureLayerValues>& values() const { return values_; }

 private:
  bool Replaces(std::int64_t layer) const;
  bool Intervenes(std::int64_t layer) const;  // on a feature of this layer
  bool Encodes(std::int64_t layer) const;
  bool WritesTo(std::int64_t layer) const;  // changes the MLP output
  bool Holds(TapId id) const;
  void Read(std::int64_t layer, const TensorView<float>& value);
  void Write(std::int64_t layer, const TensorView<float>& value);
  void WriteFrozen(std::int64_t layer, const TensorView<float>& value);
  void AddDifferences(std::int64_t layer, float* y) const;

  const Model& model_;
  const Transcoder& transcoder_;
  FeatureRunOptions options_;
  Hooks* inner_;
  std::int64_t first_ = 0, next_ = 0;   // positions, where passes follow each other
  std::vector<SparseRows> own_;         // what fires by itself
  std::vector<SparseRows> active_;      // after interventions
  std::vector<SparseRows> difference_;  // what the interventions of each layer added
  std::vector<FeatureLayerValues> values_;
  std::vector<float> input_;     // what the layer at hand reads
  std::vector<float> divisors_;  // of the norm at hand
};

}  // namespace clearhead
