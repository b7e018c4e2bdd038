// SPDX-License-Identifier: MIT
#include "use/capture.h"

#include <algorithm>

#include "core/safetensors.h"
#include "model/output.h"
#include "model/run.h"
#include "use/recorder.h"

namespace clearhead {
namespace {

std::vector<std::int64_t> Extents(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int axis = 0; axis < shape.rank(); ++axis) extents.push_back(shape[axis]);
  return extents;
}

// Each position predicts the next token of its own sequence; the last predicts nothing.
std::vector<std::int32_t> NextTokens(const std::vector<std::int32_t>& ids, std::int64_t batch) {
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / batch;
  std::vector<std::int32_t> targets(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool last = static_cast<std::int64_t>(i) % length == length - 1;
    targets[i] = last ? -1 : ids[i + 1];
  }
  return targets;
}

}  // namespace

CaptureResult Capture(const Model& model, const std::vector<std::int32_t>& ids, std::int64_t batch,
                      const CaptureOptions& options, const std::filesystem::path& out) {
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
                  .hooks = &recorder,
                  .gates = options.gates,
                  .packed = options.packed};
  const std::int64_t logit_rows = options.gradients ? std::min<std::int64_t>(pass.rows(), 512) : 0;
  Activations activations(config, batch, length, options.gradients ? Keep::kAll : Keep::kNothing,
                          logit_rows);
  Buffer<float> logits(pass.rows() * config.vocabulary);
  Forward(pass, ids.data(), activations, logits.data());

  CaptureResult result;
  Buffer<float> gradient_values;
  float loss = 0.0f;
  std::vector<TensorToWrite> tensors = {
      {.name = "ids",
       .dtype = DType::kI32,
       .shape = {batch, length},
       .raw = std::as_bytes(std::span(ids))},
      {.name = "logits", .shape = {batch, length, config.vocabulary}, .data = logits.data()}};
  for (const auto& [id, tensor] : recorder.values()) {
    tensors.push_back(
        {.name = TapName(id), .shape = Extents(tensor.shape), .data = tensor.values.data()});
  }
  if (options.gradients) {
    gradient_values = Buffer<float>(config.ParameterCount());
    std::fill(gradient_values.begin(), gradient_values.end(), 0.0f);
    ModelValues gradients = BindContiguous(config, gradient_values.data());
    PackedBf16 scratch;
    const std::vector<std::int32_t> targets = NextTokens(ids, batch);
    result.loss =
        LossBackward(pass, targets.data(), 1.0f, activations, gradients.lm_head, &scratch);
    BackwardFromFinalNorm(pass, ids.data(), activations, &gradients, &scratch);
    loss = static_cast<float>(result.loss);
    tensors.push_back({.name = "loss", .shape = {}, .data = &loss});
    VisitParameters(config, gradients, [&](const ParameterSpec& spec, const float* data) {
      tensors.push_back(
          {.name = "grad." + LibraryName(spec), .shape = Extents(spec.shape), .data = data});
    });
    for (const auto& [id, tensor] : recorder.gradients()) {
      tensors.push_back({.name = "grad." + TapName(id),
                         .shape = Extents(tensor.shape),
                         .data = tensor.values.data()});
    }
  }
  WriteSafetensors(out, tensors);
  result.tensors = static_cast<std::int64_t>(tensors.size());
  for (const TensorToWrite& tensor : tensors) {
    std::int64_t count = 4;
    for (const std::int64_t extent : tensor.shape) count *= extent;
    result.bytes += count;
  }
  return result;
}

}  // namespace clearhead
