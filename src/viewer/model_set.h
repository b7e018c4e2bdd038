// SPDX-License-Identifier: MIT
// The models that the page shows side by side. They share a tokenizer: one prompt, the same tokens.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "model/model.h"
#include "text/tokenizer.h"

namespace clearhead {

struct ViewedModel {
  std::string label;
  Model model;
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
};

// Throws Error if two of them have different tokens.
ModelSet LoadModelSet(const std::vector<ModelPlace>& places);

}  // namespace clearhead
