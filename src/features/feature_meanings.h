// SPDX-License-Identifier: MIT
// What is known about active features in a word: on which token they fire (an index says), which
// token they promote (their weights say).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "features/feature_index.h"
#include "features/graph_nodes.h"
#include "text/tokenizer.h"

namespace clearhead {

struct FeatureMeaning {
  std::string label;          // “large” “big”; empty without an index
  bool matches = false;       // one of the label's patterns ends at the feature's position
  std::int32_t promotes = 0;  // what it raises most by the direct path
  float promotion = 0.0f;     // in deviations from the mean over all tokens
};

// Of each of these features. `index` and `tokenizer` may be null. Costs one product with the output
// matrix: ask for the features that are shown.
std::vector<FeatureMeaning> MeaningsOf(const FrozenPrompt& prompt, const FeatureIndex* index,
                                       const Tokenizer* tokenizer,
                                       std::span<const ActiveFeature> features);

}  // namespace clearhead
