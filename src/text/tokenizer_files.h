// SPDX-License-Identifier: MIT
// The tokenizer files of a model folder. Readers throw Error naming the source and the line or
// token at fault; what they return is complete and consistent (every byte has a token, every merge
// is of tokens).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace clearhead {

// A file's text and the name that messages give it.
struct NamedText {
  std::string_view text;
  std::string_view name;
};

// GPT-2's own pair of files. Its one special token is "<|endoftext|>", if the vocabulary has it.
Vocabulary ReadVocabularyAndMerges(NamedText vocab_json, NamedText merges_txt);
std::string WriteVocabJson(const Vocabulary& vocabulary);
std::string WriteMergesTxt(const Vocabulary& vocabulary);

// tokenizer.json: a BPE model of bytes (GPT-2, Llama 3, Qwen, OLMo) or of characters (Llama 2,
// Mistral). Anything that would give other tokens than the rules we have is refused by name. Of the
// post-processor only the token that it puts first is read; padding and truncation are not.
Vocabulary ReadTokenizerJson(NamedText tokenizer_json);

// llama2.c's tokenizer.bin: the longest piece's length, then for each id score, length and bytes.
// Ids 0 to 2 are unknown, begin and end, 3 to 258 the bytes.
Vocabulary ReadTokenizerBin(NamedText tokenizer_bin);

struct TokenizerFolder {
  Vocabulary vocabulary;
  std::vector<TokenizerFile> files;  // what was read, for saving
};

// What a folder holds, in this order: tokenizer.json (folders of Qwen have the pair too, which does
// not tell its rules), vocab.json with merges.txt, tokenizer.bin. tokenizer_config.json, where
// there is one, has the last word on what comes first (add_bos_token).
TokenizerFolder ReadTokenizerFolder(const std::filesystem::path& directory);

// Writes what ReadTokenizerFolder reads as this vocabulary; `files` are those it came from.
void SaveTokenizerFiles(const Vocabulary& vocabulary, std::span<const TokenizerFile> files,
                        const std::filesystem::path& directory);

}  // namespace clearhead
