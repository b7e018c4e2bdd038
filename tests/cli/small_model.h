// SPDX-License-Identifier: MIT
// A folder with a small random model and a tokenizer of its own: everything a command needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"
#include "model/model_testing.h"
#include "text/bpe_train.h"
#include "text/tokenizer.h"

namespace clearhead {

// "15496,995"
inline std::string IdList(std::span<const std::int32_t> ids) {
  return fmt::format("{}", fmt::join(ids, ","));
}

inline std::string SmallText() {
  std::string text;
  for (int i = 0; i < 12; ++i) {
    text += "The cat sat on the mat, and the other cat sat on the other mat. Isn't that naïve?\n";
    text += "Chapter " + std::to_string(i) + ": then these there.\n\n";
  }
  return text;
}

// Some embeddings more than tokens, as in padded models.
inline ModelConfig SmallConfig(const Tokenizer& tokenizer) {
  ModelConfig config = OddConfig();
  config.tied = true;
  config.vocabulary = tokenizer.vocabulary_size() + 3;
  config.positions = 48;
  config.end_of_text = {*tokenizer.end_of_text()};
  return config;
}

inline Model MakeSmallModel(const std::filesystem::path& folder, bool gated = false) {
  const std::string text = SmallText();
  const std::vector<std::string_view> texts = {text};
  const Tokenizer tokenizer = TrainBpe(texts, {.vocabulary_size = 290});
  ModelConfig config = SmallConfig(tokenizer);
  if (gated) {
    config.attention = AttentionKind::kGated;
    config.gate_bias = 0.25f;
  }
  SaveModel(LivelyModel(config, 71), folder);
  tokenizer.Save(folder);
  return LoadModel(folder);
}

}  // namespace clearhead
