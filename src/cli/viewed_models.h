// SPDX-License-Identifier: MIT
// The models of `serve` and `report`: named on the command line, or the pair that ships.
#pragma once

#include <string>
#include <vector>

#include "viewer/model_set.h"

namespace clearhead::cli {

// At most two. Without names: the largest shipped dense model that has a gated one of its shape.
ModelSet OpenViewedModels(const std::vector<std::string>& models,
                          const std::vector<std::string>& labels);

}  // namespace clearhead::cli
