// SPDX-License-Identifier: MIT
// One model's run with single attention weights cut and features changed, beside the run without.
#pragma once

#include <string>

#include "viewer/page_api.h"

namespace clearhead {

inline constexpr std::size_t kMaxChanges = 64;   // of each kind, in one run
inline constexpr double kMaxFeatureValue = 1e4;  // set to, or multiplied by

// The fields "model", "cut" and "features" of a question whose prompt is read already.
void ParseChanges(const Json& json, const ModelSet& set, PageQuestion* q);

// Frame clearhead.changed-run.1: predictions and loss before and after.
std::string ChangedFrame(const ModelSet& set, const PageQuestion& q,
                         const CancelQuestion& cancelled);

}  // namespace clearhead
