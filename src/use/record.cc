// SPDX-License-Identifier: MIT
#include "use/record.h"

#include <algorithm>
#include <utility>

#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

std::vector<std::int64_t> Extents(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

// Each position predicts the next token of its own sequence; the last predicts nothing.
std::vector<std::int32_t> NextTokens(const std::vector<std::int32_t>& ids, std::int64_t length) {
  std::vector<std::int32_t> targets(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool last = static_cast<std::int64_t>(i) % length == length - 1;
    targets[i] = last ? -1 : ids[i + 1];
  }
  return targets;
}

}  // namespace

Recording Record(const Model& model, std::vector<std::int32_t> ids, std::int64_t batch,
                 const RecordOptions& options) {
  const ModelConfig& config = model.config;
  const std::int64_t length =
      static_cast<std::int64_t>(ids.size()) / std::max<std::int64_t>(batch, 1);
  CheckTokens(config, ids, batch, length);
  for (const Intervention& intervention : options.interventions) {
    CheckIntervention(intervention, config, batch, length);
  }

  std::vector<TapId> gradient_taps;
  if (options.gradients) {
    std::copy_if(options.taps.begin(), options.taps.end(), std::back_inserter(gradient_taps),
                 [](TapId id) { return HasGradient(id.tap); });
  }
  Recorder recorder(options.taps, gradient_taps, options.interventions);
  const Pass pass{.model = model,
                  .batch = batch,
                  .length = length,
                  .hooks = options.around ? options.around(&recorder) : &recorder,
                  .gates = options.gates,
                  .packed = options.packed};
  const std::int64_t logit_rows = options.gradients ? std::min<std::int64_t>(pass.rows(), 512) : 0;
  Activations activations(config, batch, length, options.gradients ? Keep::kAll : Keep::kNothing,
                          logit_rows);
  Recording recording{.config = config,
                      .batch = batch,
                      .length = length,
                      .logits = Buffer<float>(pass.rows() * config.vocabulary),
                      .has_gradients = options.gradients};
  Forward(pass, ids.data(), activations, recording.logits.data());
  if (options.gradients) {
    recording.parameter_gradients = Buffer<float>(config.ParameterCount());
    std::fill(recording.parameter_gradients.begin(), recording.parameter_gradients.end(), 0.0f);
    ModelValues gradients = BindContiguous(config, recording.parameter_gradients.data());
    PackedBf16 scratch;
    const std::vector<std::int32_t> targets = NextTokens(ids, length);
    recording.loss = LossBackward(pass, targets.data(), 1.0f, activations,
                                  OutputMatrix(config, gradients), &scratch);
    BackwardFromFinalNorm(pass, ids.data(), activations, &gradients, &scratch);
  }
  recording.ids = std::move(ids);
  recording.values = recorder.TakeValues();
  recording.gradients = recorder.TakeGradients();
  return recording;
}

WrittenFile WriteRecording(const Recording& recording, const std::filesystem::path& out,
                           std::span<const TensorToWrite> more) {
  const std::int64_t batch = recording.batch, length = recording.length;
  std::vector<TensorToWrite> tensors = {{.name = "ids",
                                         .dtype = DType::kI32,
                                         .shape = {batch, length},
                                         .raw = std::as_bytes(std::span(recording.ids))},
                                        {.name = "logits",
                                         .shape = {batch, length, recording.config.vocabulary},
                                         .data = recording.logits.data()}};
  for (const auto& [id, tensor] : recording.values) {
    tensors.push_back(
        {.name = TapName(id), .shape = Extents(tensor.shape), .data = tensor.values.data()});
  }
  const auto loss = static_cast<float>(recording.loss);
  if (recording.has_gradients) {
    tensors.push_back({.name = "loss", .shape = {}, .data = &loss});
    const float* values = recording.parameter_gradients.data();
    for (const ParameterSpec& spec : ParameterTable(recording.config)) {
      tensors.push_back({.name = "grad." + LibraryName(recording.config, spec),
                         .shape = Extents(spec.shape),
                         .data = values});
      values += spec.shape.size();
    }
    for (const auto& [id, tensor] : recording.gradients) {
      tensors.push_back({.name = "grad." + TapName(id),
                         .shape = Extents(tensor.shape),
                         .data = tensor.values.data()});
    }
  }
  tensors.insert(tensors.end(), more.begin(), more.end());
  WriteSafetensors(out, tensors);
  WrittenFile written{.tensors = static_cast<std::int64_t>(tensors.size())};
  for (const TensorToWrite& tensor : tensors) {
    std::int64_t count = 4;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    written.bytes += count;
  }
  return written;
}

}  // namespace clearhead
