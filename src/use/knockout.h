// SPDX-License-Identifier: MIT
// A run with attention weights cut: chosen (query, key) pairs of chosen heads read with weight 0,
// and the other weights stay as they are (nothing is renormalised: what the cut pairs carried is
// gone).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "use/predict.h"

namespace clearhead {

struct EdgeCut {
  std::int64_t layer = 0, head = 0;
  std::optional<std::int64_t> query = {}, key = {};  // none: all of them
};

// "L3H5:8<-5": query 8 no longer reads key 5. "L3H5:8<-*", "L3H5:*<-5"; "L3H5": nothing of the head
// is left. Throws UsageError for other text.
EdgeCut ParseEdgeCut(std::string_view text);
std::string ToText(const EdgeCut& cut);

// What a prompt's run predicts.
struct PromptOutcome {
  std::vector<std::vector<Prediction>> likeliest;  // [T]
  std::vector<double> losses;                      // [T - 1]: of the token that follows
  double loss = 0.0;                               // their mean; 0 for one token
};

struct Knockout {
  PromptOutcome before, after;
  std::vector<double> divergence;  // [T]: KL(before || after) in nats
  std::int64_t edges = 0;          // pairs whose weight was not 0 and is now
};

struct KnockoutOptions {
  std::int64_t likeliest = 5;
  GateRun gates = {};
};

// Refuses cuts of what the model or the prompt does not have, and of the future.
Knockout KnockOut(const Model& model, std::span<const std::int32_t> ids,
                  std::span<const EdgeCut> cuts, const KnockoutOptions& options);

// Of logits [T,V] for these ids: also for others who run a prompt twice.
PromptOutcome OutcomeOf(std::span<const float> logits, std::span<const std::int32_t> ids,
                        std::int64_t likeliest);
// KL(p || q) of two rows of logits, in nats.
double Divergence(std::span<const float> p, std::span<const float> q);

}  // namespace clearhead
