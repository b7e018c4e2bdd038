// SPDX-License-Identifier: MIT
// Reading config.json field by field: what is read is remembered, so that the rest can be judged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "core/json.h"

namespace clearhead {

class ConfigFields {
 public:
  ConfigFields(const Json& json, std::string source);

  const std::string& source() const { return source_; }

  // The value, or null where it is absent or null.
  const Json* Find(std::string_view name);
  bool Has(std::string_view name) const { return json_.contains(name); }

  std::int64_t Extent(std::string_view name, std::int64_t limit,
                      std::optional<std::int64_t> fallback);
  bool Flag(std::string_view name, bool fallback);
  double Number(std::string_view name, double fallback);
  float PositiveFloat(std::string_view name, float fallback);

  // Refuses a flag that asks for something we do not do.
  void MustBeFalse(std::string_view name, std::string_view why);
  // Refuses anything but an absent or null field.
  void MustBeAbsent(std::string_view name, std::string_view why);

  // Fields that are neither read nor known to change no number are refused by name.
  void RefuseUnknown() const;

 private:
  const Json& json_;
  std::string source_;
  std::unordered_set<std::string> seen_;
};

}  // namespace clearhead
