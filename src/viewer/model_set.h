// SPDX-License-Identifier: MIT
// The models that the page shows side by side. They share a tokenizer: one prompt, the same tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "features/feature_index.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace clearhead {

struct ViewedFeatures {
  Transcoder transcoder;
  std::optional<FeatureIndex> index;  // without one there are no labels and no examples
};

struct ViewedModel {
  std::string label;
  Model model;
  std::shared_ptr<const ViewedFeatures> features = {};  // null: none were given
};

struct ModelSet {
  Tokenizer tokenizer;
  std::vector<ViewedModel> models;

  // The longest prompt that all of them take.
  std::int64_t Longest() const;
  // A token for people; "#id" for embeddings beyond the tokenizer's tokens.
  std::string TokenText(std::int32_t id) const;
};

struct ModelPlace {
  std::filesystem::path folder;
  std::string label;
  std::filesystem::path features = {};  // folder of its transcoder; empty: none
};

// Throws Error if two of them have different tokens, or if features or their index are another
// model's.
ModelSet LoadModelSet(const std::vector<ModelPlace>& places);

}  // namespace clearhead
