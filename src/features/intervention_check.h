// SPDX-License-Identifier: MIT
// Whether a graph's predictions hold: strong features are switched off one by one, and what that
// does to every traced feature's pre-activation and to the logits is set beside minus their edges.
// With everything frozen both are the same but for rounding; with norms, MLPs and attention free it
// is a matter of degree.
#pragma once

#include <cstdint>

#include "features/attribution_graph.h"

namespace clearhead {

struct InterventionCheck {
  std::int64_t interventions = 0, predictions = 0;
  double largest_difference = 0.0;  // everything frozen: |measured - predicted|
  double largest_prediction = 0.0;
  // Pearson's, over all predictions; 0 where nothing varies.
  double frozen_attention_correlation = 0.0, free_correlation = 0.0;
  // The same over the logits alone.
  double frozen_attention_logits = 0.0, free_logits = 0.0;
};

// Of the `count` traced features with the largest influence.
InterventionCheck CheckInterventions(const FrozenPrompt& prompt, const AttributionGraph& graph,
                                     std::int64_t count);

}  // namespace clearhead
