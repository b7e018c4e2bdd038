// SPDX-License-Identifier: MIT
#include "features/feature_intervention.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "core/error.h"

namespace clearhead {
namespace {

template <typename Number>
bool ParseWhole(std::string_view text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// "5", "3-8", "3-"; the lists of them are separated by commas.
bool ParsePositions(std::string_view list, std::vector<FeatureIntervention::Positions>* positions) {
  while (true) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = list.substr(0, comma);
    const std::size_t dash = item.find('-');
    FeatureIntervention::Positions range;
    if (!ParseWhole(item.substr(0, dash), &range.first) || range.first < 0) return false;
    if (dash == std::string_view::npos) {
      range.last = range.first;
    } else if (dash + 1 < item.size()) {
      if (!ParseWhole(item.substr(dash + 1), &range.last) || range.last < range.first) return false;
    }
    positions->push_back(range);
    if (comma == list.size()) return true;
    list.remove_prefix(comma + 1);
  }
}

float Changed(const FeatureIntervention& intervention, float activation) {
  switch (intervention.change) {
    case FeatureChange::kSet:
      return intervention.value;
    case FeatureChange::kScale:
      return intervention.value * activation;
    case FeatureChange::kAtMost:
      return std::min(activation, intervention.value);
    case FeatureChange::kAtLeast:
      break;
  }
  return std::max(activation, intervention.value);
}

void Append(std::int64_t column, float value, SparseRows& rows) {
  if (value == 0.0f) return;
  rows.column.push_back(static_cast<std::int32_t>(column));
  rows.value.push_back(value);
}

}  // namespace

bool FeatureIntervention::AppliesAt(std::int64_t position) const {
  return positions.empty() || std::any_of(positions.begin(), positions.end(), [&](Positions range) {
           return range.first <= position && position <= range.last;
         });
}

FeatureIntervention ParseFeatureIntervention(const TranscoderConfig& config,
                                             std::string_view text) {
  const auto refuse = [&] {
    FailUsage(
        "'{}' is no change of a feature; expected L3F512=4.0@5 (set, at position 5), L3F512*0 "
        "(scale, at all positions), 'L3F512<=2@3-' or 'L3F512>=1@2,4-6' (clamp)",
        text);
  };
  FeatureIntervention result;
  const std::size_t sign = text.find_first_of("=*<>");
  if (sign == std::string_view::npos) refuse();
  result.feature = ParseFeatureOf(config, text.substr(0, sign));
  std::string_view rest = text.substr(sign);
  if (rest.starts_with("<=") || rest.starts_with(">=")) {
    result.change = rest[0] == '<' ? FeatureChange::kAtMost : FeatureChange::kAtLeast;
    rest.remove_prefix(2);
  } else if (rest[0] == '=' || rest[0] == '*') {
    result.change = rest[0] == '=' ? FeatureChange::kSet : FeatureChange::kScale;
    rest.remove_prefix(1);
  } else {
    refuse();
  }
  const std::size_t at = rest.find('@');
  if (!ParseWhole(rest.substr(0, at), &result.value) || !std::isfinite(result.value)) refuse();
  if (at != std::string_view::npos && !ParsePositions(rest.substr(at + 1), &result.positions)) {
    refuse();
  }
  return result;
}

void CheckFeatureIntervention(const FeatureIntervention& intervention,
                              const TranscoderConfig& config, std::int64_t length) {
  const FeatureId id = intervention.feature;
  if (id.layer < 0 || id.layer >= config.layers || id.feature < 0 ||
      id.feature >= config.features) {
    Fail("there is no feature {}: these are {} layers of {} features", ToText(id), config.layers,
         config.features);
  }
  if (!std::isfinite(intervention.value)) {
    Fail("feature {} cannot become {}", ToText(id), intervention.value);
  }
  for (const FeatureIntervention::Positions& range : intervention.positions) {
    if (range.first >= length) {
      Fail("feature {} is to change at position {}, but the input has positions 0 to {}",
           ToText(id), range.first, length - 1);
    }
  }
}

void ApplyFeatureInterventions(const std::vector<FeatureIntervention>& interventions,
                               std::int64_t layer, std::int64_t length, std::int64_t first,
                               SparseRows& active, SparseRows& difference) {
  SparseRows changed;
  difference = {};
  for (std::int64_t r = 0; r < active.rows(); ++r) {
    const std::int64_t begin = active.begin[static_cast<std::size_t>(r)];
    const std::int64_t end = active.begin[static_cast<std::size_t>(r) + 1];
    // By feature: before and after. A row has few entries, and few rows are changed.
    std::map<std::int64_t, std::pair<float, float>> row;
    for (const FeatureIntervention& intervention : interventions) {
      if (intervention.feature.layer != layer || !intervention.AppliesAt(first + r % length)) {
        continue;
      }
      const auto [entry, fresh] = row.try_emplace(intervention.feature.feature);
      if (fresh) {
        const auto from = active.column.begin() + begin, to = active.column.begin() + end;
        const auto found = std::lower_bound(from, to, intervention.feature.feature);
        const bool fires = found != to && *found == intervention.feature.feature;
        const float before =
            fires ? active.value[static_cast<std::size_t>(found - active.column.begin())] : 0.0f;
        entry->second = {before, before};
      }
      entry->second.second = Changed(intervention, entry->second.second);
    }
    auto next = row.begin();
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int32_t column = active.column[static_cast<std::size_t>(e)];
      for (; next != row.end() && next->first < column; ++next) {
        Append(next->first, next->second.second, changed);
      }
      const bool here = next != row.end() && next->first == column;
      Append(column, here ? next->second.second : active.value[static_cast<std::size_t>(e)],
             changed);
      if (here) ++next;
    }
    for (; next != row.end(); ++next) Append(next->first, next->second.second, changed);
    for (const auto& [feature, values] : row) {
      Append(feature, values.second - values.first, difference);
    }
    changed.begin.push_back(changed.size());
    difference.begin.push_back(difference.size());
  }
  active = std::move(changed);
}

}  // namespace clearhead
