// The page with its data inside: one HTML file that opens from disk, without server or network.
#pragma once

#include <string>
#include <vector>

#include "viewer/model_set.h"
#include "viewer/results.h"

namespace clearhead {

// Every prompt is run with all heads; maps are stored whole, or reduced where they would be too
// large for one answer (MostCells).
std::string MakePageReport(const ModelSet& set, const std::vector<std::string>& prompts,
                           const std::vector<ResultFile>& results);

// The first example of each task that the tokenizer can express.
std::vector<std::string> ExamplePrompts(const ModelSet& set);

}  // namespace clearhead
