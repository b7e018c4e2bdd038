// SPDX-License-Identifier: MIT
// Carriers of many prompts: how many heads by every way of counting, and what closing them did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "features/carriers.h"

namespace clearhead {

struct ValueSpread {
  std::vector<double> values;

  double mean() const;
  double least() const;
  double most() const;
};

struct CarrierAverages {
  struct Count {
    std::string name;
    ValueSpread heads, contributing;
  };
  struct Check {
    KnockOutMode mode;
    ValueSpread share, random;  // of each prompt: of the set, mean of its random sets
  };
  std::int64_t prompts = 0;
  std::vector<Count> counts;
  ValueSpread stated_share;
  std::vector<Check> checks;
  ValueSpread replacement, completeness, probability;
  std::vector<double> used;  // [L,H] in how many prompts a head was among those of the share
};

void AddTo(CarrierAverages& averages, const Carriers& carriers, const GraphScores& scores);

Json ToJson(const CarrierAverages& averages, std::int64_t heads_per_layer);

}  // namespace clearhead
