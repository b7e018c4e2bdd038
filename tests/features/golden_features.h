// SPDX-License-Identifier: MIT
// The golden transcoders: their cases, models and prompts.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "features/transcoder_files.h"
#include "support/golden.h"

namespace clearhead {

inline std::filesystem::path FeatureGoldens() {
  return std::filesystem::path(CLEARHEAD_TEST_DATA) / "golden/features";
}
inline std::filesystem::path GoldenTranscoder(const std::string& name) {
  return FeatureGoldens() / "transcoders" / name;
}

struct GoldenPrompt {
  std::string prefix;  // "p0."
  std::vector<std::int32_t> ids;
  std::int64_t length = 0;
  std::vector<std::int32_t> features;  // [n,3]: layer, position, feature
};

struct FeatureCase {
  std::string name;  // of the transcoder's folder
  std::filesystem::path model;
  Json json;
  std::map<std::string, GoldenTensor> tensors;
  std::vector<GoldenPrompt> prompts;

  const std::vector<float>& Values(const std::string& tensor) const {
    return tensors.at(tensor).values;
  }
};

// The six cases, and the CLT-Forge one once more with its weights in circuit-tracer's layout.
inline std::vector<std::string> FeatureCaseNames() {
  std::vector<std::string> names = {"gated-clt-forge-as-circuit-tracer"};
  for (const Json& entry : ReadJsonFile(FeatureGoldens() / "index.json")) {
    names.push_back(entry["name"].get<std::string>());
  }
  return names;
}

inline FeatureCase ReadFeatureCase(const std::string& name) {
  const std::string values = name.substr(0, name.find("-as-"));
  FeatureCase c{.name = name,
                .model = {},
                .json = ReadJsonFile(FeatureGoldens() / "cases" / (values + ".json")),
                .tensors = ReadGolden(FeatureGoldens() / "cases" / (values + ".safetensors")),
                .prompts = {}};
  c.model = FeatureGoldens() / c.json["model"].get<std::string>();
  const SafetensorsFile file(FeatureGoldens() / "cases" / (values + ".safetensors"));
  for (const char* prompt : {"p0", "p1"}) {
    GoldenPrompt& p = c.prompts.emplace_back();
    p.prefix = std::string(prompt) + ".";
    p.ids = c.json[prompt]["ids"].get<std::vector<std::int32_t>>();
    p.length = static_cast<std::int64_t>(p.ids.size());
    const TensorEntry& features = file.Get(p.prefix + "features");
    p.features.resize(static_cast<std::size_t>(features.size()));
    std::memcpy(p.features.data(), features.bytes.data(), features.bytes.size());
  }
  return c;
}

// For the names of parameterised tests.
inline std::string PlainName(std::string name) {
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

}  // namespace clearhead
