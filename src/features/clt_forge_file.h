// SPDX-License-Identifier: MIT
// CLT-Forge's layout: clt_cfg.json and clt_weights.safetensors with
//   W_enc [L,C,F]  b_enc [L,F]  log_threshold [L,F]  estimated_norm_scaling_factor_in|out [L]
//   W_dec [P,F,C]  b_dec [P,C]
// where P counts the pairs (source, target >= source), by source, then by target; without
// cross-layer decoders P = L. Inputs are multiplied by their factor, outputs divided by theirs.
#pragma once

#include <filesystem>

#include "features/transcoder.h"

namespace clearhead {

Transcoder ReadCltForge(const std::filesystem::path& folder);

}  // namespace clearhead
