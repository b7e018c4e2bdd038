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

ModelSet OpenViewedModels(const std::vector<std::string>& models,
                          const std::vector<std::string>& labels) {
  const std::vector<std::string> names = models.empty() ? ShippedPair() : models;
  if (names.size() > 2) FailUsage("{} models were given, the page shows two", names.size());
  if (labels.size() > names.size()) {
    FailUsage("there are {} labels for {} models", labels.size(), names.size());
  }
  std::vector<ModelPlace> places;
  for (std::size_t m = 0; m < names.size(); ++m) {
    const fs::path folder = FindModel(names[m]);
    places.push_back(
        {folder, m < labels.size() ? labels[m] : fs::weakly_canonical(folder).filename().string()});
  }
  return LoadModelSet(places);
}

}  // namespace clearhead::cli
