// SPDX-License-Identifier: MIT
// What `clearhead carriers` prints: JSON and tables.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/trace_inputs.h"
#include "features/carrier_averages.h"
#include "features/carriers.h"
#include "features/feature_groups.h"

namespace clearhead::cli {

// One model's answer.
struct CarrierAnswer {
  const TracedModel* model = nullptr;
  FrozenPrompt prompt;
  AttributionGraph graph;
  GraphScores scores;
  GroupedGraph grouped;
  Carriers carriers;
  Json seconds;
};

Json ToJson(const CarrierAnswer& answer, std::int64_t pairs);
std::string CarriersText(std::span<const CarrierAnswer> answers, double share, std::int64_t pairs);

// Averages of models, side by side.
std::string AveragesText(std::span<const std::string> names,
                         std::span<const CarrierAverages> averages, double share,
                         const std::string& task);

}  // namespace clearhead::cli
