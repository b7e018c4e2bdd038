// SPDX-License-Identifier: MIT
// Small models with large enough numbers in them, and runs of them kept in memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/random.h"
#include "model/family.h"
#include "model/output.h"
#include "model/run.h"
#include "support/golden.h"
#include "use/recorder.h"

namespace clearhead {

// Odd and prime extents everywhere, untied, so that no two axes can be confused.
inline ModelConfig OddConfig() {
  ModelConfig config;
  config.layers = 2;
  config.heads = 3;
  config.width = 15;
  config.inner = 29;
  config.vocabulary = 23;
  config.positions = 17;
  config.tied = false;
  return config;
}

inline ModelConfig GatedConfig(float bias = 0.25f) {
  ModelConfig config = OddConfig();
  config.attention = AttentionKind::kGated;
  config.gate_bias = bias;
  return config;
}

// The same odd extents in the form of another family: shared keys and values, a head size that is
// not width / heads.
inline ModelConfig FamilyConfig(const char* model_type, bool gated) {
  Json json = {
      {"model_type", model_type}, {"num_hidden_layers", 2}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}, {"head_dim", 6},          {"hidden_size", 15},
      {"intermediate_size", 29},  {"vocab_size", 23},       {"max_position_embeddings", 17}};
  if (std::string_view(model_type) == "llama") {
    json.update({{"attention_bias", true}, {"mlp_bias", true}});
  }
  if (std::string_view(model_type) == "olmo") json["clip_qkv"] = 0.8;
  ModelConfig config = ParseConfig(json, model_type);
  if (gated) {
    config.attention = AttentionKind::kGated;
    config.gate_bias = 0.25f;
  }
  return config;
}

// One of every form that a model can have.
inline std::vector<ModelConfig> TestConfigs() {
  std::vector<ModelConfig> configs = {OddConfig(), GatedConfig()};
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "olmo", "olmo2"}) {
    configs.push_back(FamilyConfig(type, /*gated=*/false));
  }
  configs.push_back(FamilyConfig("llama", /*gated=*/true));
  configs.push_back(FamilyConfig("olmo2", /*gated=*/true));
  configs.push_back(FamilyConfig("llama", /*gated=*/true));
  configs.back().gate_bias_by_head = true;
  return configs;
}

// For messages.
inline std::string NameOf(const ModelConfig& config) {
  return fmt::format("{}{}", FamilyOf(config).model_type,
                     config.attention == AttentionKind::kGated ? ", gated" : "");
}

// The parameters one after another, as BindContiguous lays them out. Unlike fresh weights, biases
// and norms are not trivial and attention is far from uniform.
inline std::vector<float> LivelyParameters(const ModelConfig& config, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<float> values;
  for (const ParameterSpec& spec : ParameterTable(config)) {
    const bool norm_weight = IsNormWeight(spec.role);
    for (std::int64_t i = 0; i < spec.shape.size(); ++i) {
      const double deviation = spec.decays() ? 0.35 : 0.1;
      values.push_back(static_cast<float>((norm_weight ? 1.0 : 0.0) + deviation * random.Normal()));
    }
  }
  return values;
}

inline Model ModelOf(const ModelConfig& config, std::vector<float> parameters) {
  auto storage = std::make_shared<std::vector<float>>(std::move(parameters));
  Model model;
  model.config = config;
  model.weights = BindWeights(config, storage->data());
  model.storage = storage;
  return model;
}

inline Model LivelyModel(const ModelConfig& config, std::uint64_t seed = 1) {
  return ModelOf(config, LivelyParameters(config, seed));
}

inline std::vector<std::int32_t> RandomIds(const ModelConfig& config, std::int64_t count,
                                           std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(
        static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(config.vocabulary))));
  }
  return ids;
}

struct RunOptions {
  std::vector<TapId> taps = {};
  bool gradients = false;  // of the parameters and of `taps` where they have one
  std::vector<Intervention> interventions = {};
  GateRun gates = {};
};

struct ModelRun {
  std::vector<float> logits;  // [B,T,V]
  double loss = 0.0;          // computed here, in double, from the logits
  double library_loss = 0.0;  // with gradients only
  std::map<TapId, GoldenTensor> taps, tap_gradients;
  std::vector<float> parameter_gradients;
};

inline double MeanLoss(const std::vector<float>& logits, const std::vector<std::int32_t>& ids,
                       std::int64_t batch, std::int64_t vocabulary) {
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / batch;
  double sum = 0.0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t t = 0; t + 1 < length; ++t) {
      const float* row = logits.data() + (b * length + t) * vocabulary;
      double total = 0.0;
      for (std::int64_t v = 0; v < vocabulary; ++v) total += std::exp(double{row[v]});
      sum += std::log(total) - row[ids[static_cast<std::size_t>(b * length + t + 1)]];
    }
  }
  return sum / static_cast<double>(batch * (length - 1));
}

inline std::map<TapId, GoldenTensor> Copied(const std::map<TapId, RecordedTensor>& recorded) {
  std::map<TapId, GoldenTensor> copies;
  for (const auto& [id, tensor] : recorded) {
    GoldenTensor& copy = copies[id];
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) copy.shape.push_back(tensor.shape[axis]);
    copy.values.assign(tensor.values.begin(), tensor.values.end());
  }
  return copies;
}

inline ModelRun RunModel(const Model& model, const std::vector<std::int32_t>& ids,
                         std::int64_t batch, const RunOptions& options = {}) {
  const ModelConfig& config = model.config;
  const std::int64_t length = static_cast<std::int64_t>(ids.size()) / batch;
  for (const Intervention& intervention : options.interventions) {
    CheckIntervention(intervention, config, batch, length);
  }
  std::vector<TapId> gradient_taps;
  if (options.gradients) {
    std::copy_if(options.taps.begin(), options.taps.end(), std::back_inserter(gradient_taps),
                 [](TapId id) { return HasGradient(id.tap); });
  }
  Recorder recorder(options.taps, gradient_taps, options.interventions);
  const Pass pass{
      .model = model, .batch = batch, .length = length, .hooks = &recorder, .gates = options.gates};
  Activations activations(config, batch, length, options.gradients ? Keep::kAll : Keep::kNothing,
                          options.gradients ? 7 : 0);
  ModelRun run;
  run.logits.resize(static_cast<std::size_t>(pass.rows() * config.vocabulary));
  Forward(pass, ids.data(), activations, run.logits.data());
  if (length > 1) run.loss = MeanLoss(run.logits, ids, batch, config.vocabulary);
  if (options.gradients) {
    std::vector<std::int32_t> targets(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    for (std::int64_t b = 1; b < batch; ++b) targets[static_cast<std::size_t>(b * length - 1)] = -1;
    run.parameter_gradients.assign(static_cast<std::size_t>(config.ParameterCount()), 0.0f);
    ModelValues gradients = BindContiguous(config, run.parameter_gradients.data());
    PackedBf16 scratch;
    run.library_loss = LossBackward(pass, targets.data(), 1.0f, activations,
                                    OutputMatrix(config, gradients), &scratch);
    BackwardFromFinalNorm(pass, ids.data(), activations, &gradients, &scratch);
  }
  run.taps = Copied(recorder.values());
  run.tap_gradients = Copied(recorder.gradients());
  return run;
}

inline Shape ShapeOf(const GoldenTensor& tensor) {
  Shape shape;
  for (const std::int64_t extent : tensor.shape) shape.Append(extent);
  return shape;
}

// An intervention with values of the tap's own shape.
inline Intervention WithValues(TapId tap, Change change, const GoldenTensor& values) {
  return {.tap = tap, .change = change, .values = values.values, .values_shape = ShapeOf(values)};
}

// The message of the Error that `call` throws; empty if it throws none.
template <typename Call>
std::string ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace clearhead
