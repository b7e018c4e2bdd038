// SPDX-License-Identifier: MIT
// The page's questions about features: what fires on a prompt, one feature's card, features by
// text. docs/api.md is the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "features/prompt_features.h"
#include "viewer/model_set.h"
#include "viewer/page_api.h"

namespace clearhead {

inline constexpr std::int64_t kMaxFeatureEntries = 40'000;  // features named in one answer
inline constexpr std::int64_t kMaxFound = 200;
inline constexpr std::int64_t kMaxSearchBytes = 256;

// Throws Error for a model without them.
const ViewedFeatures& FeaturesOf(const ModelSet& set, std::size_t model);

// Five digits of every number: half of what a page is sent would be digits that nobody sees.
void RoundNumbers(Json* json);

// In the overview: null for a model without features.
Json FeaturesInfo(const ViewedModel& viewed);

// What fires in every model that has features; nothing for the others. Fewer of each cell where
// they would be more than kMaxFeatureEntries.
std::vector<std::optional<PromptFeatures>> RunFeatures(const ModelSet& set, const PageQuestion& q,
                                                       const CancelQuestion& cancelled);
// clearhead.prompt-features.1
std::string FeaturesFrame(const ModelSet& set, const PageQuestion& q,
                          const std::vector<std::optional<PromptFeatures>>& runs);

// One feature, or a text to look for, in one model.
struct FeatureQuestion {
  std::size_t model = 0;
  FeatureId feature;
  std::string text;
  std::int64_t most = 50;
};
enum class FeatureQuestionKind { kCard, kFind };
FeatureQuestion ParseFeatureQuestion(FeatureQuestionKind kind, std::string_view body,
                                     const ModelSet& set);

// clearhead.feature.1, numbers rounded to five digits.
Json CardAnswer(const ModelSet& set, std::size_t model, FeatureId feature);
// clearhead.features-found.1
Json FindAnswer(const ModelSet& set, const FeatureQuestion& q);

// For a report: clearhead.feature-cards.1, the cards of one model's features on its prompts, the
// strongest first, at most `most`.
Json CardsOf(const ModelSet& set, std::size_t model,
             const std::vector<std::vector<std::optional<PromptFeatures>>>& prompts,
             std::int64_t most);

}  // namespace clearhead
