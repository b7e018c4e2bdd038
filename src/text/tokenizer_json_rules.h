// SPDX-License-Identifier: MIT
// The rules that a tokenizer.json states: normalizer, pre_tokenizer, decoder, the model's settings,
// post_processor. What we do not have is refused by name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "text/text_rules.h"

namespace clearhead {

using Document = nlohmann::json;  // sorted keys: large objects parse in n log n

// The member, or null if it is not there or there is no object.
const Document& Member(const Document& object, const char* key);

std::string Shown(const Document& value);

// Refuses a setting that changes the tokens, unless it has one of the values that do not.
void ExpectSetting(std::string_view name, const Document& object, const char* key,
                   std::initializer_list<Document> harmless);

// All but the choice between WordRule::kWhole and kSpaceRuns, which depends on the tokens.
TextRules ReadRules(std::string_view name, const Document& root);

// The token that the post-processor puts before the text, if any: its id, below `vocabulary_size`.
std::optional<std::int32_t> ReadBeginOfText(std::string_view name, const Document& root,
                                            std::int32_t vocabulary_size);

}  // namespace clearhead
