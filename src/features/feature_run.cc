// SPDX-License-Identifier: MIT
#include "features/feature_run.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/threads.h"

namespace clearhead {
namespace {

bool IsDivisor(Tap tap) {
  return tap == Tap::kLn1Scale || tap == Tap::kLn2Scale || tap == Tap::kLnFinalScale;
}

bool IsNormed(Tap tap) {
  return tap == Tap::kLn1Normalized || tap == Tap::kLn2Normalized || tap == Tap::kLnFinalNormalized;
}

float* MakeRoom(Buffer<float>& buffer, std::int64_t count) {
  if (buffer.size() != count) buffer = Buffer<float>(count);
  return buffer.data();
}

}  // namespace

FeatureRun::FeatureRun(const Model& model, const Transcoder& transcoder, FeatureRunOptions options,
                       Hooks* inner)
    : model_(model), transcoder_(transcoder), options_(std::move(options)), inner_(inner) {
  const TranscoderConfig& c = transcoder.config;
  const auto layers = static_cast<std::size_t>(c.layers);
  Check(options_.replaced.empty() || options_.replaced.size() == layers, "replaced by layer");
  for (const FeatureIntervention& intervention : options_.interventions) {
    CheckFeatureIntervention(intervention, c, model.config.positions);
  }
  const bool replaces = std::find(options_.replaced.begin(), options_.replaced.end(), true) !=
                        options_.replaced.end();
  const Freeze freeze = options_.frozen == nullptr ? Freeze::kNothing : options_.frozen->freeze;
  if (replaces && freeze == Freeze::kAll) {
    Fail("frozen MLP outputs cannot be replaced by their reconstructions");
  }
  own_.resize(layers);
  active_.resize(layers);
  difference_.resize(layers);
  values_.resize(layers);
}

bool FeatureRun::Replaces(std::int64_t layer) const {
  return !options_.replaced.empty() && options_.replaced[static_cast<std::size_t>(layer)];
}

bool FeatureRun::Intervenes(std::int64_t layer) const {
  return std::any_of(options_.interventions.begin(), options_.interventions.end(),
                     [layer](const FeatureIntervention& i) { return i.feature.layer == layer; });
}

bool FeatureRun::Encodes(std::int64_t layer) const {
  if (options_.keep_active || options_.keep_pre || options_.keep_outputs || Intervenes(layer)) {
    return true;
  }
  for (std::int64_t t = layer; t < LastTarget(transcoder_.config, layer); ++t) {
    if (Replaces(t)) return true;
  }
  return false;
}

bool FeatureRun::WritesTo(std::int64_t layer) const {
  if (Replaces(layer)) return true;
  if (options_.frozen != nullptr && options_.frozen->freeze == Freeze::kAll) return true;
  for (std::int64_t l = 0; l <= layer; ++l) {
    if (layer < LastTarget(transcoder_.config, l) && Intervenes(l)) return true;
  }
  return false;
}

bool FeatureRun::Holds(TapId id) const {
  if (options_.frozen == nullptr || options_.frozen->freeze == Freeze::kNothing) return false;
  return id.tap == Tap::kPattern ||
         (options_.frozen->freeze == Freeze::kAll && (IsDivisor(id.tap) || IsNormed(id.tap)));
}

bool FeatureRun::Wants(TapId id) const {
  if (inner_ != nullptr && inner_->Wants(id)) return true;
  if (id.tap == transcoder_.config.reads && Encodes(id.layer)) return true;
  if (id.tap == Tap::kMlpOut && (options_.keep_outputs || WritesTo(id.layer))) return true;
  return Holds(id);
}

bool FeatureRun::Changes(TapId id) const {
  if (inner_ != nullptr && inner_->Changes(id)) return true;
  if (id.tap == Tap::kMlpOut) return WritesTo(id.layer);
  return Holds(id) && !IsDivisor(id.tap);
}

float* FeatureRun::Storage(TapId id, const Shape& shape) {
  return inner_ == nullptr ? nullptr : inner_->Storage(id, shape);
}

bool FeatureRun::WantsGradient(TapId id) const {
  return inner_ != nullptr && inner_->WantsGradient(id);
}

void FeatureRun::VisitGradient(TapId id, const TensorView<float>& gradient) {
  inner_->VisitGradient(id, gradient);
}

void FeatureRun::Visit(TapId id, const TensorView<float>& value) {
  if (Holds(id)) {
    if (IsDivisor(id.tap)) {
      divisors_.assign(value.data, value.data + value.shape.size());
    } else {
      HoldValue(*options_.frozen, model_, id, divisors_, value);
    }
  }
  if (id.tap == Tap::kMlpOut && (options_.keep_outputs || WritesTo(id.layer))) {
    Write(id.layer, value);
  }
  if (inner_ != nullptr && inner_->Wants(id)) inner_->Visit(id, value);
  if (id.tap == transcoder_.config.reads && Encodes(id.layer)) Read(id.layer, value);
}

void FeatureRun::Read(std::int64_t layer, const TensorView<float>& value) {
  Check(value.contiguous(), "what MLPs read lies in rows");
  const auto at = static_cast<std::size_t>(layer);
  const std::int64_t T = value.shape[1], R = value.shape[0] * T;
  bool first_read = true;
  for (std::int64_t l = 0; l < layer; ++l) first_read &= !Encodes(l);
  if (options_.continues && first_read) {
    first_ = next_;
    next_ += T;
  }
  input_.assign(value.data, value.data + value.shape.size());
  if (options_.keep_pre) {
    float* pre = MakeRoom(values_[at].pre, R * transcoder_.config.features);
    PreActivations(transcoder_, layer, R, input_.data(), pre);
    Activate(transcoder_, layer, R, pre, own_[at]);
  } else {
    own_[at] = Encode(transcoder_, layer, R, input_.data());
  }
  active_[at] = own_[at];
  if (!Intervenes(layer)) return;
  ApplyFeatureInterventions(options_.interventions, layer, T, first_, active_[at], difference_[at]);
  if (options_.frozen != nullptr && options_.frozen->freeze == Freeze::kAll) {
    // Direct effects: the difference to what it was.
    SparseRows before = options_.frozen->active[at];
    ApplyFeatureInterventions(options_.interventions, layer, T, first_, before, difference_[at]);
  }
}

void FeatureRun::AddDifferences(std::int64_t layer, float* y) const {
  for (std::int64_t l = 0; l <= layer; ++l) {
    if (layer >= LastTarget(transcoder_.config, l) || !Intervenes(l)) continue;
    AddWritten(transcoder_, l, layer, difference_[static_cast<std::size_t>(l)], y);
  }
}

// As it was, and what the interventions write; a skip is linear and goes on.
void FeatureRun::WriteFrozen(std::int64_t layer, const TensorView<float>& value) {
  const RecordedTensor* before = options_.frozen->Find({Tap::kMlpOut, layer});
  Check(before != nullptr && before->shape == value.shape, "a frozen run of the same input");
  std::copy(before->values.begin(), before->values.end(), value.data);
  AddDifferences(layer, value.data);
  const auto& skip = transcoder_.layers[static_cast<std::size_t>(layer)].skip;
  if (!skip) return;
  const std::int64_t R = value.shape[0] * value.shape[1], C = value.shape[2];
  const RecordedTensor* x = options_.frozen->Find({transcoder_.config.reads, layer});
  std::vector<float> moved(input_);
  for (std::int64_t i = 0; i < R * C; ++i) moved[static_cast<std::size_t>(i)] -= x->values[i];
  Buffer<float> through(R * C);
  LinearForward(*skip, R, moved.data(), through.data());
  for (std::int64_t i = 0; i < R * C; ++i) value.data[i] += through[i];
}

void FeatureRun::Write(std::int64_t layer, const TensorView<float>& value) {
  Check(value.contiguous(), "what MLPs write lies in rows");
  const auto at = static_cast<std::size_t>(layer);
  const std::int64_t T = value.shape[1], C = value.shape[2], R = value.shape[0] * T;
  const bool frozen = options_.frozen != nullptr && options_.frozen->freeze == Freeze::kAll;
  if (!options_.keep_outputs && frozen) return WriteFrozen(layer, value);
  if (!options_.keep_outputs && !Replaces(layer)) return AddDifferences(layer, value.data);

  FeatureLayerValues& kept = values_[at];
  float* own = MakeRoom(kept.reconstruction, R * C);
  float* error = MakeRoom(kept.error, R * C);
  Reconstruct(transcoder_, layer, R, own_, input_.data(), own);
  const float* y =
      frozen ? options_.frozen->Find({Tap::kMlpOut, layer})->values.data() : value.data;
  for (std::int64_t i = 0; i < R * C; ++i) error[i] = y[i] - own[i];
  AddDifferences(layer, own);  // now with interventions
  if (frozen) return WriteFrozen(layer, value);
  if (!Replaces(layer)) return AddDifferences(layer, value.data);
  for (std::int64_t r = 0; r < R; ++r) {
    const bool keeps = options_.keep_errors || first_ + r % T < options_.first_position;
    for (std::int64_t i = r * C; i < (r + 1) * C; ++i) {
      value.data[i] = keeps ? own[i] + error[i] : own[i];
    }
  }
}

}  // namespace clearhead
