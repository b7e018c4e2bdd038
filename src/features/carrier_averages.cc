// SPDX-License-Identifier: MIT
#include "features/carrier_averages.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace clearhead {
namespace {

Json ToJson(const ValueSpread& spread) {
  if (spread.values.empty()) return nullptr;
  return {{"mean", spread.mean()},
          {"least", spread.least()},
          {"most", spread.most()},
          {"values", spread.values}};
}

}  // namespace

double ValueSpread::mean() const {
  if (values.empty()) return 0.0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double ValueSpread::least() const {
  return values.empty() ? 0.0 : *std::min_element(values.begin(), values.end());
}
double ValueSpread::most() const {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

void AddTo(CarrierAverages& averages, const Carriers& carriers, const GraphScores& scores) {
  ++averages.prompts;
  // A prompt may lack a count (no feature at its key): names are found, not numbered.
  for (const CarrierCount& count : carriers.counts) {
    auto it = std::find_if(averages.counts.begin(), averages.counts.end(),
                           [&](const auto& other) { return other.name == count.name; });
    if (it == averages.counts.end()) {
      it = averages.counts.insert(it, {.name = count.name, .heads = {}, .contributing = {}});
    }
    it->heads.values.push_back(count.heads);
    it->contributing.values.push_back(static_cast<double>(count.contributing));
  }
  for (const Carriers::Check& check : carriers.checks) {
    auto it = std::find_if(averages.checks.begin(), averages.checks.end(),
                           [&](const auto& other) { return other.mode == check.mode; });
    if (it == averages.checks.end()) {
      it = averages.checks.insert(it, {.mode = check.mode, .share = {}, .random = {}});
    }
    it->share.values.push_back(check.share.share);
    it->random.values.push_back(check.share.random_mean);
  }
  averages.stated_share.values.push_back(carriers.stated_share);
  averages.replacement.values.push_back(scores.replacement);
  averages.completeness.values.push_back(scores.completeness);
  if (carriers.edge.logit) averages.probability.values.push_back(carriers.edge.logit->probability);
  averages.used.resize(carriers.split.one_hop.size(), 0.0);
  const std::vector<std::int64_t> order = RankByMagnitude(carriers.split.one_hop);
  for (std::size_t i = 0; i < carriers.heads.size(); ++i) averages.used[order[i]] += 1.0;
}

Json ToJson(const CarrierAverages& averages, std::int64_t heads_per_layer) {
  Json counts = Json::array(), checks = Json::array(), used = Json::array();
  for (const CarrierAverages::Count& count : averages.counts) {
    counts.push_back({{"name", count.name},
                      {"heads", ToJson(count.heads)},
                      {"contributing", ToJson(count.contributing)}});
  }
  for (const CarrierAverages::Check& check : averages.checks) {
    checks.push_back({{"mode", NameOf(check.mode)},
                      {"share", ToJson(check.share)},
                      {"random", ToJson(check.random)}});
  }
  for (const std::int64_t i : RankByMagnitude(averages.used)) {
    if (averages.used[i] == 0.0) break;
    used.push_back({{"head", fmt::format("L{}H{}", i / heads_per_layer, i % heads_per_layer)},
                    {"prompts", averages.used[i]}});
  }
  return {{"prompts", averages.prompts},
          {"counts", std::move(counts)},
          {"stated_share", ToJson(averages.stated_share)},
          {"knock_out", std::move(checks)},
          {"replacement", ToJson(averages.replacement)},
          {"completeness", ToJson(averages.completeness)},
          {"probability", ToJson(averages.probability)},
          {"used_heads", std::move(used)}};
}

}  // namespace clearhead
