// SPDX-License-Identifier: MIT
// The page with its data inside: one HTML file that opens from disk, without server or network.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "viewer/model_set.h"
#include "viewer/results.h"

namespace clearhead {

// Runs done and runs in all, after each.
using PageReportProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Every prompt is run with all heads, and with heads switched off (ablation_runs.h). Maps are
// stored whole, or reduced where they would be too large for one answer (MostCells).
std::string MakePageReport(const ModelSet& set, const std::vector<std::string>& prompts,
                           const std::vector<ResultFile>& results,
                           const PageReportProgress& progress = {});

// The first example of each task that the tokenizer can express.
std::vector<std::string> ExamplePrompts(const ModelSet& set);

}  // namespace clearhead
