// SPDX-License-Identifier: MIT
// Names of features: layer and number, both from zero, written L3F512.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "features/transcoder.h"

namespace clearhead {

struct FeatureId {
  std::int64_t layer = 0, feature = 0;
  auto operator<=>(const FeatureId&) const = default;
};

std::string ToText(FeatureId id);  // L3F512

// L3F512 (in any case), 3.512 or 3_512.
std::optional<FeatureId> ParseFeature(std::string_view text);

// The same for these features; throws Error for other text and for what is not among them.
FeatureId ParseFeatureOf(const TranscoderConfig& config, std::string_view text);

// Circuit-tracer's one number for both (Cantor's pairing).
std::int64_t PairedNumber(FeatureId id);

}  // namespace clearhead
