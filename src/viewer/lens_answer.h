// SPDX-License-Identifier: MIT
// The logit lens of a prompt in one model: what each layer would predict at every position, and
// what each head says by itself at one (use/lens.h).
#pragma once

#include <string>

#include "viewer/page_api.h"

namespace clearhead {

inline constexpr std::int64_t kMaxLensTokens = 128;

// The fields "model", "position" and "target" of a question whose prompt is read already.
void ParseLens(const Json& json, const ModelSet& set, PageQuestion* q);

// Frame clearhead.prompt-lens.1, without arrays.
std::string LensFrame(const ModelSet& set, const PageQuestion& q, const CancelQuestion& cancelled);

}  // namespace clearhead
