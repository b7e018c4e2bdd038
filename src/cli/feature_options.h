// SPDX-License-Identifier: MIT
// --features DIR and --feature CHANGE, for commands that run a model with its features.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/common.h"
#include "core/error.h"
#include "features/feature_intervention.h"
#include "features/transcoder_files.h"
#include "model/model.h"

namespace clearhead::cli {

struct FeatureFlags {
  std::string folder;
  std::vector<std::string> changes;
  Option* folder_option = nullptr;

  void Add(Command* command, const std::string& help) {
    folder_option = command->add_option("--features", folder, help);
    command
        ->add_option(
            "--feature", changes,
            "Change a feature: L3F512=4.0@5 sets it at position 5, 'L3F512*0' turns it off "
            "everywhere, 'L3F512<=2@3-' and 'L3F512>=1@2,4-6' clamp it; may be repeated")
        ->allow_extra_args(false);
  }

  // The features, checked against the model; none if none are named.
  std::optional<Transcoder> Load(const Model& model) const {
    if (folder_option->count() == 0) {
      if (!changes.empty()) FailUsage("--feature changes a feature of --features DIR; give both");
      return {};
    }
    Transcoder transcoder = LoadTranscoder(FindFeatures(folder));
    CheckFits(transcoder, model);
    return transcoder;
  }

  std::vector<FeatureIntervention> Interventions(const Transcoder& transcoder) const {
    std::vector<FeatureIntervention> interventions;
    for (const std::string& change : changes) {
      interventions.push_back(ParseFeatureIntervention(transcoder.config, change));
    }
    return interventions;
  }
};

}  // namespace clearhead::cli
