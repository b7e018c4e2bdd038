// SPDX-License-Identifier: MIT
// A folder with random weights and a tokenizer that knows the words of the tasks.
#pragma once

#include "cli/program.h"
#include "cli/small_model.h"

namespace clearhead {

inline void MakeTaskModel(const std::filesystem::path& folder,
                          AttentionKind attention = AttentionKind::kSoftmax) {
  const std::string text = Succeed({"tasks", "copy", "ioi", "opposites", "greater-than", "addition",
                                    "--lines", "3000", "--part", "taught"})
                               .out;
  const std::vector<std::string_view> texts = {text};
  const Tokenizer tokenizer = TrainBpe(texts, {.vocabulary_size = 900});
  ModelConfig config = SmallConfig(tokenizer);
  config.attention = attention;
  if (attention == AttentionKind::kGated) config.gate_bias = 0.25f;
  SaveModel(LivelyModel(config, 3), folder);
  tokenizer.Save(folder);
}

}  // namespace clearhead
