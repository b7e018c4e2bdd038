// SPDX-License-Identifier: MIT
// What the measurements run on. Speed does not depend on the values, only on their being ordinary
// numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "model/config.h"

namespace clearhead {

// The 124M model.
ModelConfig Shape124M();

// Uniform in [-0.5, 0.5).
Buffer<float> RandomValues(std::int64_t count);

std::vector<std::int32_t> RandomTokens(const ModelConfig& config, std::int64_t count);

}  // namespace clearhead
