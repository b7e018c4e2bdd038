// SPDX-License-Identifier: MIT
// Some features in a row while a text passes by, and what becomes of them: columns of the index, or
// a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "features/feature_labels.h"
#include "features/feature_tally.h"
#include "features/feature_tokens.h"
#include "features/index_columns.h"
#include "use/evaluate.h"

namespace clearhead {

struct IndexSlice {
  std::int64_t first = 0;  // feature of layer first / F
  std::vector<FeatureTally> tallies;
  std::vector<LabelCandidates> labels;  // empty until half of the text has proposed them
  std::vector<FeatureTokens> tokens;

  std::int64_t size() const { return static_cast<std::int64_t>(tallies.size()); }
};

// What a layer's features [first, first + count) of the slice do in a group of windows.
struct SliceLayer {
  std::int64_t layer = 0;
  std::int64_t first = 0, count = 0;  // features of the layer
  std::int64_t place = 0;             // of the first, in the slice
};
// The layers that the slice of `count` features from `first` on has a part of; `features` of each.
std::vector<SliceLayer> LayersOf(std::int64_t first, std::int64_t count, std::int64_t features);

// Windows that end behind the first `quotable` tokens give no examples.
void AddGroup(const SliceLayer& part, const SparseRows& active, const WindowGroup& group,
              const WindowedText& text, std::int64_t quotable, IndexSlice* slice);

// Candidates from the half of the text that has passed by, whose places `counts` has.
void Propose(const WindowedText& text, const SuffixCounts& counts, IndexSlice* slice);

// The slice's features at the end; `counts` are of the other half.
IndexColumns ColumnsOf(const IndexSlice& slice, std::int64_t vocabulary, const WindowedText& text,
                       const SuffixCounts& counts);

// Everything but the tokens, which weights alone give. `settings` says what it belongs to, `groups`
// how far it came.
void SaveSlice(const IndexSlice& slice, const std::string& settings, std::int64_t groups,
               const std::filesystem::path& path);
// Returns `groups`; refuses a file with other settings, of another slice, or with places outside
// the text of `tokens` tokens.
std::int64_t LoadSlice(const std::filesystem::path& path, const std::string& settings,
                       std::int64_t tokens, IndexSlice* slice);

}  // namespace clearhead
