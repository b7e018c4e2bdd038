// SPDX-License-Identifier: MIT
#include "model/family.h"

#include <algorithm>

#include "model/families/families.h"

namespace clearhead {

std::span<const Family* const> Families() { return kFamilies; }

const Family& FamilyOf(const ModelConfig& config) {
  return config.family == nullptr ? *kFamilies[0] : *config.family;
}

const Family* FindFamily(std::string_view model_type) {
  const auto found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family* family) { return family->model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : *found;
}

}  // namespace clearhead
