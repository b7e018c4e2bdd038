// SPDX-License-Identifier: MIT
// How often labels are right: features drawn at random, a text that had no part in the index.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/communicator.h"
#include "core/json.h"
#include "features/feature_index.h"

namespace clearhead {

struct LabelCheckOptions {
  std::int64_t features = 200;
  std::uint64_t seed = 0;
  std::int64_t context = 0;  // 0: that of the index
  std::int64_t max_tokens = 0;
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  Communicator* ranks = nullptr;  // groups of windows are shared out among them; null: one alone
};

// Of the places of the text where one of the feature's label patterns ends (a place counts once,
// position 0 of windows does not): how many there are, and on how many the feature fires.
struct CheckedLabel {
  FeatureId id;
  FeatureLabel label;
  std::int64_t seen = 0, fired = 0;
};

struct LabelCheckSummary {
  std::int64_t features = 0;  // of this sort
  std::int64_t seen = 0;      // whose label occurs in the text
  double share = 0.0;         // mean over these of fired / seen; 0 without any
};

struct LabelCheck {
  std::vector<CheckedLabel> labels;
  std::int64_t silent = 0;             // drawn too, but passed over: they never fired for the index
  std::int64_t tokens = 0;             // places looked at
  std::int64_t places = 0, fired = 0;  // of all labels together
  LabelCheckSummary all;
  std::array<LabelCheckSummary, kLabelKinds> kinds = {};  // by LabelKind
  std::vector<LabelCheckSummary> layers;
};

// Features are drawn without regard to anything but the seed; those that never fired for the index
// have no label and are passed over.
LabelCheck CheckLabels(const Model& model, const Transcoder& transcoder, const FeatureIndex& index,
                       std::span<const std::int32_t> tokens, const LabelCheckOptions& options);

}  // namespace clearhead
