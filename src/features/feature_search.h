// SPDX-License-Identifier: MIT
// Features found by text: in their labels, in the tokens they promote or that excite them, in their
// examples. Upper and lower case are the same.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "features/feature_index.h"
#include "text/tokenizer.h"

namespace clearhead {

enum class FoundIn { kLabel, kPromoted, kExciting, kExample };
std::string_view NameOf(FoundIn place);  // "label", ...

struct FoundFeature {
  FeatureId id;
  FoundIn where = FoundIn::kLabel;
  bool whole = false;  // the text is a whole token or label there, spaces aside
};

struct FoundFeatures {
  std::int64_t total = 0;
  std::vector<FoundFeature> features;  // at most as many as asked for
};

// The best first: labels, then promoted, exciting tokens, examples; whole ones before parts; in
// each the feature that fires more often. Blanks around `text` do not count; an empty one finds
// nothing.
FoundFeatures SearchFeatures(const FeatureIndex& index, const Tokenizer& tokenizer,
                             std::string_view text, std::int64_t most);

}  // namespace clearhead
