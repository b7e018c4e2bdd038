// SPDX-License-Identifier: MIT
// Everything that can be told about one feature, for people and as JSON (docs/formats.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "features/feature_index.h"
#include "features/label_check.h"
#include "text/tokenizer.h"

namespace clearhead {

struct FeatureCard {
  FeatureId id;
  FeatureTokens tokens;
  std::vector<float> writes;          // norm of what it writes into its own layer and those after
  std::optional<FeatureFacts> facts;  // of an index
  std::int64_t looked_at = 0;         // tokens of the index's text
};

// Without an index (null) it is what the weights say.
FeatureCard CardOf(const Model& model, const Transcoder& transcoder, const FeatureIndex* index,
                   const Tokenizer& tokenizer, FeatureId id);

// The text of tokens in a row, valid UTF-8, line ends and tabs as signs.
std::string TextOf(const Tokenizer& tokenizer, std::span<const std::int32_t> ids);
// “large” “big”; "" without a label.
std::string LabelText(const Tokenizer& tokenizer, const FeatureLabel& label);
// What the label says about when the feature fires, in words.
std::string LabelSentence(const Tokenizer& tokenizer, const FeatureLabel& label);

Json ToJson(const Tokenizer& tokenizer, const FeatureLabel& label);
Json ToJson(const Tokenizer& tokenizer, const FeatureCard& card);  // clearhead.feature.1
Json ToJson(const Tokenizer& tokenizer, const LabelCheck& check);  // clearhead.label-check.1

}  // namespace clearhead
