// SPDX-License-Identifier: MIT
#include "features/feature_id.h"

#include <fmt/format.h>

#include <charconv>

#include "core/error.h"

namespace clearhead {
namespace {

// The digits at the front of `text`, which are taken off; none or too many of them: nothing.
std::optional<std::int64_t> TakeNumber(std::string_view* text) {
  if (text->empty() || (*text)[0] < '0' || (*text)[0] > '9') return {};
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  text->remove_prefix(static_cast<std::size_t>(end - text->data()));
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string ToText(FeatureId id) { return fmt::format("L{}F{}", id.layer, id.feature); }

std::optional<FeatureId> ParseFeature(std::string_view text) {
  const bool letters = text.starts_with('L') || text.starts_with('l');
  if (letters) text.remove_prefix(1);
  const std::optional<std::int64_t> layer = TakeNumber(&text);
  if (!layer || text.empty()) return {};
  const std::string_view between = letters ? "Ff" : "._";
  if (between.find(text[0]) == std::string_view::npos) return {};
  text.remove_prefix(1);
  const std::optional<std::int64_t> feature = TakeNumber(&text);
  if (!feature || !text.empty()) return {};
  return FeatureId{*layer, *feature};
}

FeatureId ParseFeatureOf(const TranscoderConfig& config, std::string_view text) {
  const std::optional<FeatureId> id = ParseFeature(text);
  if (!id) Fail("'{}' is not the name of a feature; one is written like L3F512", text);
  if (id->layer >= config.layers || id->feature >= config.features) {
    Fail("there is no feature {}: these are {} layers of {} features, L0F0 to L{}F{}", ToText(*id),
         config.layers, config.features, config.layers - 1, config.features - 1);
  }
  return *id;
}

std::int64_t PairedNumber(FeatureId id) {
  const std::int64_t sum = id.layer + id.feature;
  return sum * (sum + 1) / 2 + id.feature;
}

}  // namespace clearhead
