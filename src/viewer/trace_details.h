// SPDX-License-Identifier: MIT
// What a report knows about a trace beyond its graph: there nothing can be asked, so the strongest
// edges are split into heads beforehand, with the heads' reasons and the predictions without them.
#pragma once

#include <cstdint>

#include "viewer/page_api.h"
#include "viewer/traced_prompts.h"

namespace clearhead {

// Of one prompt and model: edges between positions, edges within one, heads of an edge with reasons
// and a cut of their own (the cut of all that make the share is there in any case).
inline constexpr std::int64_t kReportEdges = 24, kReportEdgesWithin = 12, kReportHeads = 6;

// clearhead.trace-details.1 of question q's prompt in one model.
Json TraceDetails(const ModelSet& set, const PageQuestion& q, std::size_t model,
                  const TracedPrompt& traced);

}  // namespace clearhead
