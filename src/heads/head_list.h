// SPDX-License-Identifier: MIT
// The heads a user asks for: all | L0H1,5.1,a5.h1 | top:N | circuit:FILE.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "heads/head_id.h"

namespace clearhead {

// Layer by layer.
std::vector<HeadId> AllHeads(std::int64_t layers, std::int64_t heads);

// In the order given: a list as written, a circuit by importance (its first "at_90" heads if the
// file says how many give 90 % of the effect). `by_importance` gives every head, the most important
// first; it is called for top:N only, because it may have to run a model. Refuses heads that the
// model does not have, and heads named twice.
std::vector<HeadId> ParseHeadList(std::string_view text, std::int64_t layers, std::int64_t heads,
                                  const std::function<std::vector<HeadId>()>& by_importance);

}  // namespace clearhead
