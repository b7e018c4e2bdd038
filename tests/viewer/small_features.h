// SPDX-License-Identifier: MIT
// Random features with an index for a small model, in a folder beside it: what the page shows.
#pragma once

#include <filesystem>

#include "cli/small_model.h"
#include "features/build_index.h"
#include "features/feature_testing.h"
#include "features/transcoder_files.h"

namespace clearhead {

// Of the model in `folder`, in `folder`-features, where serve and report look for it. Features
// count from position 1 on, as trained ones do.
inline std::filesystem::path MakeSmallFeatures(const std::filesystem::path& folder) {
  const Model model = LoadModel(folder);
  const Tokenizer tokenizer = Tokenizer::Load(folder);
  Transcoder transcoder = RandomTranscoder(model, {.features = 64, .threshold = 1.5f});
  transcoder.config.first_position = 1;
  std::filesystem::path place = folder;
  place += "-features";
  SaveTranscoder(transcoder, place, DType::kF32);
  BuildIndex(model, LoadTranscoder(place), tokenizer.Encode(SmallText()),
             {.context = 32, .vocabulary = tokenizer.vocabulary_size()}, place);
  return place;
}

}  // namespace clearhead
