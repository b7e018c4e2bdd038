// SPDX-License-Identifier: MIT
// Changes to features during a run: what a feature of a layer is at some positions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "features/feature_id.h"
#include "kernels/sparse_rows.h"

namespace clearhead {

enum class FeatureChange {
  kSet,      // it is the value
  kScale,    // it is the value times what it would be
  kAtMost,   // it is clamped from above
  kAtLeast,  // it is clamped from below
};

struct FeatureIntervention {
  struct Positions {
    std::int64_t first = 0;
    std::int64_t last = std::numeric_limits<std::int64_t>::max();  // open: it goes on with the text
  };
  FeatureId feature;
  FeatureChange change = FeatureChange::kSet;
  float value = 0.0f;
  std::vector<Positions> positions = {};  // none: all

  bool AppliesAt(std::int64_t position) const;
};

// "L3F512=4.0@5": set at position 5. "L3F512*0": off everywhere. "L3F512<=2@3-": at most 2 from
// position 3 on. "L3F512>=1@2,4-6". Throws UsageError for other text, Error for a feature that is
// not there.
FeatureIntervention ParseFeatureIntervention(const TranscoderConfig& config, std::string_view text);

// Refuses features and values that are not there, and positions beyond a sequence of this length.
void CheckFeatureIntervention(const FeatureIntervention& intervention,
                              const TranscoderConfig& config, std::int64_t length);

// What fires in a layer, rows [B,T] of which the first position is `first`, with the interventions
// on that layer applied in order. `difference` is what they added, by entries.
void ApplyFeatureInterventions(const std::vector<FeatureIntervention>& interventions,
                               std::int64_t layer, std::int64_t length, std::int64_t first,
                               SparseRows& active, SparseRows& difference);

}  // namespace clearhead
