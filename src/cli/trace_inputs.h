// SPDX-License-Identifier: MIT
// What `trace` and `carriers` share: a model with features, a prompt, and words that name tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "core/json.h"
#include "features/attribution_graph.h"
#include "features/feature_index.h"
#include "features/transcoder.h"
#include "text/tokenizer.h"

namespace clearhead::cli {

// Frozen prompts point to the model and the features: these stay where they are made.
struct TracedModel {
  std::string name, features_name;
  Model model;
  std::optional<Transcoder> transcoder;
  std::optional<Tokenizer> tokenizer;  // ids can be traced without one
  std::optional<FeatureIndex> index;

  const Tokenizer* Words() const { return tokenizer ? &*tokenizer : nullptr; }
  const FeatureIndex* Index() const { return index ? &*index : nullptr; }
  const Transcoder* Features() const { return transcoder ? &*transcoder : nullptr; }
};

// `features` may be empty. `index`: where it is, if not beside the features.
std::unique_ptr<TracedModel> LoadTraced(const std::string& model, const std::string& features,
                                        const std::string& index);

// The last part of a path, as people call it.
std::string ShortName(const std::string& path);

// The one token that a text is; refuses others, saying what the text is made of.
std::int32_t SingleToken(const Tokenizer* tokenizer, const std::string& text);

// --target, --target-ids and --contrast; at most one kind of them.
struct TargetOptions {
  std::vector<std::string> targets, contrast;
  std::string ids;

  void Add(Command* command);
  LogitOptions Read(const Tokenizer* tokenizer) const;
};

// "“The”, “ opposite”, ..." as texts.
std::vector<std::string> TokenTexts(const Tokenizer* tokenizer, std::span<const std::int32_t> ids);

}  // namespace clearhead::cli
