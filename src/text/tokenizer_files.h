// SPDX-License-Identifier: MIT
// The tokenizer files of a Hugging Face model folder. Readers throw Error naming the source and the
// line or token at fault; what they return is complete and consistent (every byte has a token,
// every merge is of tokens).
#pragma once

#include <string>
#include <string_view>

#include "text/vocabulary.h"

namespace clearhead {

// A file's text and the name that messages give it.
struct NamedText {
  std::string_view text;
  std::string_view name;
};

// GPT-2's own pair of files. Its one special token is "<|endoftext|>", if the vocabulary has it.
Vocabulary ReadVocabularyAndMerges(NamedText vocab_json, NamedText merges_txt);

// tokenizer.json: a BPE model with GPT-2's ByteLevel rule. Anything that would give other tokens
// than GPT-2's rules is refused by name. The post-processor, padding and truncation are not read:
// they say what a caller adds around the tokens of the text.
Vocabulary ReadTokenizerJson(NamedText tokenizer_json);

std::string WriteVocabJson(const Vocabulary& vocabulary);
std::string WriteMergesTxt(const Vocabulary& vocabulary);

}  // namespace clearhead
