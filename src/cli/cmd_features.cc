// SPDX-License-Identifier: MIT
// clearhead features COMMAND: what the MLPs compute, by transcoders. One file per command.
#include "cli/commands.h"
#include "cli/options.h"

namespace clearhead::cli {

void AddFeatures(CLI::App& app) {
  CLI::App& features =
      AddGroup(app, "features",
               "What the MLPs compute: train transcoders, judge them, look at their features");
  AddFeaturesTrain(features);
  AddFeaturesEval(features);
  AddFeaturesIndex(features);
  AddFeaturesShow(features);
}

}  // namespace clearhead::cli
