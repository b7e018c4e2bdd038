// SPDX-License-Identifier: MIT
#include "features/feature_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "model/run.h"

namespace clearhead {
namespace {

bool Any(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), true) != flags.end();
}

// Sequence by sequence, then layer by layer.
void CollectActive(const std::vector<SparseRows>& active, std::int64_t batch, std::int64_t length,
                   FeatureRecording* out) {
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::size_t l = 0; l < active.size(); ++l) {
      const SparseRows& layer = active[l];
      for (std::int64_t t = 0; t < length; ++t) {
        const auto row = static_cast<std::size_t>(b * length + t);
        for (std::int64_t e = layer.begin[row]; e < layer.begin[row + 1]; ++e) {
          const auto at = static_cast<std::size_t>(e);
          out->active.insert(out->active.end(),
                             {static_cast<std::int32_t>(b), static_cast<std::int32_t>(l),
                              static_cast<std::int32_t>(t), layer.column[at]});
          out->values.push_back(layer.value[at]);
        }
      }
    }
  }
}

Buffer<float> Copy(const Buffer<float>& from) {
  Buffer<float> to(from.size());
  std::copy(from.begin(), from.end(), to.begin());
  return to;
}

}  // namespace

FeatureTaps MatchFeatureTaps(std::string_view patterns, const ModelConfig& config) {
  const std::vector<TapId> all = AllTaps(config);
  std::vector<std::string> names;
  for (const TapId id : all) names.push_back(TapName(id));
  for (std::int64_t l = 0; l < config.layers; ++l) {
    for (const char* what : {"pre", "reconstruction", "error"}) {
      names.push_back(fmt::format("features.{}.{}", l, what));
    }
  }
  const std::vector<bool> chosen =
      MatchNames(patterns, names, TapName({Tap::kPattern, 0}) + " or features.0.pre");
  FeatureTaps taps;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i]) taps.taps.push_back(all[i]);
  }
  for (std::size_t i = all.size(); i < chosen.size(); i += 3) {
    taps.pre.push_back(chosen[i]);
    taps.reconstruction.push_back(chosen[i + 1]);
    taps.error.push_back(chosen[i + 2]);
  }
  return taps;
}

FeatureRecording RecordFeatures(const Model& model, const Transcoder& transcoder,
                                std::vector<std::int32_t> ids, std::int64_t batch,
                                FeatureRecordOptions options) {
  CheckFits(transcoder, model);
  const TranscoderConfig& c = transcoder.config;
  const std::int64_t length =
      static_cast<std::int64_t>(ids.size()) / std::max<std::int64_t>(batch, 1);
  CheckTokens(model.config, ids, batch, length);
  for (const FeatureIntervention& intervention : options.interventions) {
    CheckFeatureIntervention(intervention, c, length);
  }
  const bool changes = !options.interventions.empty() || options.freeze != Freeze::kNothing;
  if (options.record.gradients && changes) {
    Fail("gradients through changed features are not defined; leave out one of the two");
  }
  const FrozenRun frozen = KeepForFreezing(model, transcoder, ids, batch, options.freeze,
                                           options.record.gates, options.record.packed);
  std::optional<FeatureRun> run;
  const FeatureTaps& taps = options.taps;
  options.record.taps = taps.taps;
  options.record.around = [&](Hooks* recorder) {
    return &run.emplace(
        model, transcoder,
        FeatureRunOptions{.interventions = options.interventions,
                          .frozen = &frozen,
                          .keep_pre = Any(taps.pre),
                          .keep_outputs = Any(taps.reconstruction) || Any(taps.error)},
        recorder);
  };
  FeatureRecording result;
  result.recording = Record(model, std::move(ids), batch, options.record);
  CollectActive(run->active(), batch, length, &result);
  const auto add = [&](const std::vector<bool>& chosen, std::size_t layer, const char* what,
                       std::int64_t width, const Buffer<float>& values) {
    if (chosen.empty() || !chosen[layer]) return;
    result.taps.push_back({.name = fmt::format("features.{}.{}", layer, what),
                           .shape = {batch, length, width},
                           .values = Copy(values)});
  };
  for (std::size_t l = 0; l < run->values().size(); ++l) {
    const FeatureLayerValues& values = run->values()[l];
    add(taps.pre, l, "pre", c.features, values.pre);
    add(taps.reconstruction, l, "reconstruction", c.width, values.reconstruction);
    add(taps.error, l, "error", c.width, values.error);
  }
  return result;
}

std::vector<TensorToWrite> FeatureTensors(const FeatureRecording& recording) {
  const auto n = static_cast<std::int64_t>(recording.values.size());
  std::vector<TensorToWrite> tensors = {
      {.name = "features.active",
       .dtype = DType::kI32,
       .shape = {n, 4},
       .raw = std::as_bytes(std::span(recording.active))},
      {.name = "features.values", .shape = {n}, .raw = std::as_bytes(std::span(recording.values))}};
  for (const FeatureRecording::Named& tap : recording.taps) {
    tensors.push_back({.name = tap.name, .shape = tap.shape, .data = tap.values.data()});
  }
  return tensors;
}

Freeze ParseFreeze(std::string_view name) {
  if (name == "none") return Freeze::kNothing;
  if (name == "attention") return Freeze::kAttention;
  if (name == "all") return Freeze::kAll;
  Fail("'{}' cannot be frozen; expected none, attention or all", name);
}

}  // namespace clearhead
