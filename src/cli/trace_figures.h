// SPDX-License-Identifier: MIT
// Results of `trace` and `carriers` as what their figures show.
#pragma once

#include <span>
#include <string>

#include "cli/carriers_output.h"
#include "cli/trace_inputs.h"
#include "features/feature_groups.h"
#include "figures/carrier_figure.h"
#include "figures/graph_figure.h"

namespace clearhead::cli {

// The strongest groups and edges of a graph of groups. An edge counts by its share of what makes
// its target (magnitudes), times the target's influence.
GraphFigure FigureOf(const GroupedGraph& grouped, const TracedModel& model,
                     std::span<const std::int32_t> ids);

// Of one or two models.
CarrierFigure FigureOf(std::span<const CarrierAnswer> answers, double share);

}  // namespace clearhead::cli
