// SPDX-License-Identifier: MIT
// Tokens as people read them, for commands that can also do without a tokenizer (--ids): a token is
// then its number.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/trace_inputs.h"
#include "core/error.h"
#include "core/json.h"
#include "text/tokenizer.h"
#include "use/predict.h"

namespace clearhead::cli {

class PromptWords {
 public:
  explicit PromptWords(const std::filesystem::path& model) {
    if (HasTokenizer(model)) tokenizer_ = Tokenizer::Load(model);
  }

  std::string Text(std::int32_t id) const {
    const bool known = tokenizer_ && id < tokenizer_->vocabulary_size();
    return known ? tokenizer_->TokenText(id) : std::to_string(id);
  }
  std::vector<std::string> Texts(std::span<const std::int32_t> ids) const {
    std::vector<std::string> texts;
    for (const std::int32_t id : ids) texts.push_back(Text(id));
    return texts;
  }
  // The one token that a text is; refuses others.
  std::int32_t Single(const std::string& text) const {
    return SingleToken(tokenizer_ ? &*tokenizer_ : nullptr, text);
  }
  std::vector<std::int32_t> Prompt(const std::string& text) const {
    if (!tokenizer_) Fail("the model has no tokenizer to read '{}' with", text);
    return tokenizer_->EncodePrompt(text);
  }
  Json PredictionsJson(const std::vector<Prediction>& predictions) const {
    Json list = Json::array();
    for (const auto& [token, probability] : predictions) {
      list.push_back({{"token", token}, {"text", Text(token)}, {"probability", probability}});
    }
    return list;
  }

 private:
  std::optional<Tokenizer> tokenizer_;
};

}  // namespace clearhead::cli
