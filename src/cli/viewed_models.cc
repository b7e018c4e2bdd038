// SPDX-License-Identifier: MIT
#include "cli/viewed_models.h"

#include "cli/common.h"
#include "core/error.h"

namespace clearhead::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> ShippedPair() {
  std::vector<std::string> pair;
  std::int64_t largest = 0;
  const std::vector<std::string> names = ShippedModels();
  for (const std::string& dense : names) {
    const ModelConfig a = ReadConfig(FindModel(dense));
    if (a.attention != AttentionKind::kSoftmax || a.ParameterCount() <= largest) continue;
    for (const std::string& gated : names) {
      const ModelConfig b = ReadConfig(FindModel(gated));
      if (b.attention == AttentionKind::kGated && a.layers == b.layers && a.heads == b.heads &&
          a.width == b.width && a.vocabulary == b.vocabulary) {
        pair = {dense, gated};
        largest = a.ParameterCount();
        break;
      }
    }
  }
  if (pair.empty()) {
    FailUsage("no dense and sparse pair of models ships with this build; name one or two MODELs");
  }
  return pair;
}

}  // namespace

void ViewedOptions::Add(Command* command) {
  command->add_option("MODEL", models,
                      "One or two folders or names of models (default: the pair that ships)");
  command->add_option("--label", labels, "Title of each model, in order")->allow_extra_args(false);
  command
      ->add_option("--features", features,
                   "Folder or name of each model's features, in order (`-`: none)")
      ->allow_extra_args(false);
}

ModelSet OpenViewedModels(const ViewedOptions& options) {
  const std::vector<std::string> names = options.models.empty() ? ShippedPair() : options.models;
  if (names.size() > 2) FailUsage("{} models were given, the page shows two", names.size());
  if (options.labels.size() > names.size()) {
    FailUsage("there are {} labels for {} models", options.labels.size(), names.size());
  }
  if (options.features.size() > names.size()) {
    FailUsage("there are {} folders of features for {} models", options.features.size(),
              names.size());
  }
  std::vector<ModelPlace> places;
  for (std::size_t m = 0; m < names.size(); ++m) {
    const fs::path folder = FindModel(names[m]);
    const std::string name = fs::weakly_canonical(folder).filename().string();
    ModelPlace& place = places.emplace_back();
    place.folder = folder;
    place.label = m < options.labels.size() ? options.labels[m] : name;
    if (m >= options.features.size()) {
      const fs::path beside = fs::weakly_canonical(folder).parent_path() / (name + "-features");
      if (fs::exists(beside / "config.yaml")) place.features = beside;
    } else if (options.features[m] != "-") {
      place.features = FindFeatures(options.features[m]);
    }
  }
  return LoadModelSet(places);
}

}  // namespace clearhead::cli
