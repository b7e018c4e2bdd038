// SPDX-License-Identifier: MIT
// The golden transcoders' prompts, frozen, and their graphs.
#pragma once

#include <gtest/gtest.h>

#include "features/attribution_graph.h"
#include "features/golden_features.h"

namespace clearhead {

// Of the largest expected magnitude, and absolute below 1: ten times what fp32 costs the maker.
inline constexpr double kGraphTolerance = 1e-5;

inline std::vector<std::int32_t> TargetsOf(const FeatureCase& golden) {
  return golden.json["graph"]["logits"].get<std::vector<std::int32_t>>();
}

inline std::vector<float> Floats(const Buffer<float>& buffer) {
  return {buffer.begin(), buffer.end()};
}
inline std::vector<float> Floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

class GoldenGraphTest : public testing::TestWithParam<std::string> {
 protected:
  GoldenGraphTest()
      : golden(ReadFeatureCase(GetParam())),
        model(LoadModel(golden.model)),
        transcoder(LoadTranscoder(GoldenTranscoder(golden.name))) {}

  FrozenPrompt RunPrompt(int prompt) const {
    return FreezePrompt(model, &transcoder, golden.prompts[prompt].ids);
  }
  AttributionGraph GraphOf(const FrozenPrompt& run) const {
    return Trace(run, {.logits = {.tokens = TargetsOf(golden)}});
  }
  void ExpectNear(const std::vector<float>& found, const std::string& tensor,
                  double tolerance = kGraphTolerance) const {
    EXPECT_LE(MaxRelativeDifference(found, golden.Values(tensor)), tolerance) << tensor;
  }
  // U8 or I32.
  template <typename T>
  std::vector<T> Whole(const std::string& tensor) const {
    const std::string values = golden.name.substr(0, golden.name.find("-as-"));
    const SafetensorsFile file(FeatureGoldens() / "cases" / (values + ".safetensors"));
    const TensorEntry& entry = file.Get(tensor);
    std::vector<T> whole(entry.bytes.size() / sizeof(T));
    std::memcpy(whole.data(), entry.bytes.data(), entry.bytes.size());
    return whole;
  }

  FeatureCase golden;
  Model model;
  Transcoder transcoder;
};

}  // namespace clearhead
