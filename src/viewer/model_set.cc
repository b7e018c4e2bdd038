// SPDX-License-Identifier: MIT
#include "viewer/model_set.h"

#include <algorithm>

#include "core/error.h"
#include "features/transcoder_files.h"
#include "model/packed_weights.h"

namespace clearhead {
namespace {

// The page sends one prompt to both models and draws both maps over the same tokens.
void CheckSameTokens(const Tokenizer& a, const Tokenizer& b, const ModelPlace& first,
                     const ModelPlace& other) {
  const std::int32_t common = std::min(a.vocabulary_size(), b.vocabulary_size());
  std::int32_t id = 0;
  while (id < common && a.TokenBytes(id) == b.TokenBytes(id)) ++id;
  if (id == common && a.vocabulary_size() == b.vocabulary_size()) return;
  Fail(
      "'{}' and '{}' have different vocabularies: their tokens differ from number {} on; view "
      "models with one tokenizer",
      first.label, other.label, id);
}

std::shared_ptr<const ViewedFeatures> OpenFeatures(const std::filesystem::path& folder,
                                                   const Model& model, const Tokenizer& tokenizer) {
  if (folder.empty()) return nullptr;
  auto features = std::make_shared<ViewedFeatures>(
      ViewedFeatures{.transcoder = LoadTranscoder(folder), .index = FindIndex(folder)});
  CheckFits(features->transcoder, model);
  if (!features->index) return features;
  features->index->CheckBelongsTo(features->transcoder);
  if (features->index->info().vocabulary > tokenizer.vocabulary_size()) {
    Fail(
        "'{}': its index knows {} tokens, the tokenizer {}; make it again with `clearhead features "
        "index`",
        folder.string(), features->index->info().vocabulary, tokenizer.vocabulary_size());
  }
  return features;
}

}  // namespace

std::int64_t ModelSet::Longest() const {
  std::int64_t longest = models[0].model.config.positions;
  for (const ViewedModel& viewed : models) {
    longest = std::min(longest, viewed.model.config.positions);
  }
  return longest;
}

std::string ModelSet::TokenText(std::int32_t id) const {
  return id < tokenizer.vocabulary_size() ? tokenizer.TokenText(id) : fmt::format("#{}", id);
}

ModelSet LoadModelSet(const std::vector<ModelPlace>& places) {
  Check(!places.empty(), "a page without models");
  ModelSet set{.tokenizer = Tokenizer::Load(places[0].folder)};
  for (const ModelPlace& place : places) {
    if (&place != &places[0]) {
      CheckSameTokens(set.tokenizer, Tokenizer::Load(place.folder), places[0], place);
    }
    set.models.push_back({place.label, LoadModel(place.folder)});
    ViewedModel& viewed = set.models.back();
    PackForUse(&viewed.model);
    viewed.features = OpenFeatures(place.features, viewed.model, set.tokenizer);
    if (set.models.back().model.config.vocabulary < set.tokenizer.vocabulary_size()) {
      Fail("'{}' has {} embeddings for {} tokens; its tokenizer belongs to another model",
           place.label, set.models.back().model.config.vocabulary, set.tokenizer.vocabulary_size());
    }
  }
  return set;
}

}  // namespace clearhead
