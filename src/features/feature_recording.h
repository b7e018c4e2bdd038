// SPDX-License-Identifier: MIT
// A recording (use/record.h) with what the features did in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors.h"
#include "features/feature_run.h"
#include "use/record.h"

namespace clearhead {

// Taps by name, those of the features among them: features.{l}.pre [B,T,F],
// features.{l}.reconstruction and features.{l}.error [B,T,C].
struct FeatureTaps {
  std::vector<TapId> taps;
  std::vector<bool> pre, reconstruction, error;  // by layer
};
FeatureTaps MatchFeatureTaps(std::string_view patterns, const ModelConfig& config);

struct FeatureRecording {
  Recording recording;
  std::vector<std::int32_t> active;  // [n,4]: sequence, layer, position, feature, in that order
  std::vector<float> values;         // [n]
  struct Named {
    std::string name;
    std::vector<std::int64_t> shape;
    Buffer<float> values;
  };
  std::vector<Named> taps;
};

struct FeatureRecordOptions {
  // `taps` of the recorder are set from those below.
  RecordOptions record = {};
  FeatureTaps taps = {};
  std::vector<FeatureIntervention> interventions = {};
  Freeze freeze = Freeze::kNothing;
};

// Refuses features of another model, interventions that do not fit the input, and gradients
// together with interventions: what they replace has none.
FeatureRecording RecordFeatures(const Model& model, const Transcoder& transcoder,
                                std::vector<std::int32_t> ids, std::int64_t batch,
                                FeatureRecordOptions options);

// features.active, features.values and the taps; they point into the recording.
std::vector<TensorToWrite> FeatureTensors(const FeatureRecording& recording);

// "none", "attention", "all".
Freeze ParseFreeze(std::string_view name);

}  // namespace clearhead
