// SPDX-License-Identifier: MIT
// A number that tells the weights of one model from another's: what was made for a model records
// it.
#pragma once

#include <cstdint>

#include "model/model.h"

namespace clearhead {

// Of all weights as fp32 in the family's order, however they are stored.
std::uint64_t WeightsFingerprint(const Model& model);

}  // namespace clearhead
