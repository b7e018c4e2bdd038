// SPDX-License-Identifier: MIT
// The models of `serve` and `report`: named on the command line, or the pair that ships.
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "viewer/model_set.h"

namespace clearhead::cli {

// What the commands ask for.
struct ViewedOptions {
  std::vector<std::string> models, labels, features;

  void Add(Command* command);
};

// At most two. Without names: the largest shipped dense model that has a gated one of its shape.
// Features, one folder or name for each model, are optional; those that ship with a shipped model
// (NAME-features) come by themselves.
ModelSet OpenViewedModels(const ViewedOptions& options);

}  // namespace clearhead::cli
