// SPDX-License-Identifier: MIT
// What the report knows about switched-off heads: there no model can run, so every set of heads
// that a reader is likely to try is run beforehand and only its predictions are kept.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "heads/head_id.h"
#include "viewer/model_set.h"
#include "viewer/results.h"

namespace clearhead {

inline constexpr std::int64_t kAblationLikeliest = 5;
inline constexpr std::int64_t kMaxAblationFloats = 500'000;  // predictions of one prompt

// Sets of heads to switch off in one model: each head, each layer, all, and all but each circuit
// of `results` that has the model's shape. Sorted heads, no set twice.
std::vector<std::vector<HeadId>> AblationSets(const ViewedModel& viewed,
                                              const std::vector<ResultFile>& results);

// Frame clearhead.ablations.1 (docs/api.md) of one prompt. Losses are kept at every position, the
// likeliest tokens at the last positions that fit into kMaxAblationFloats. `ran` is called after
// each run of a model.
std::string AblationFrame(const ModelSet& set, const std::string& prompt,
                          const std::vector<ResultFile>& results, const std::function<void()>& ran);

}  // namespace clearhead
