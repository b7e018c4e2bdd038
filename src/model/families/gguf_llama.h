// SPDX-License-Identifier: MIT
#pragma once

#include "core/gguf.h"
#include "model/model.h"

namespace clearhead {

// A Llama-family model in fp32, F16, BF16 or Q8_0. Other architectures, other quantisations and
// scaled rotary positions are refused by name.
Model ImportGguf(const GgufFile& file);

}  // namespace clearhead
