// SPDX-License-Identifier: MIT
// Text to token ids and back: byte-level BPE (GPT-2, Llama 3, Qwen, OLMo) and SentencePiece's
// (Llama 2, Mistral). What families do differently is in text_rules.h.
//
// Any bytes can be encoded, UTF-8 or not. Byte-level vocabularies without normaliser give back
// exactly what went in: DecodeBytes(Encode(x)) == x. The same holds for what EncodePrompt and
// DecodePrompt do by llama2.c's rules. pretokenize.h says how text is split into words, bpe.h and
// piece_merge.h how a word becomes tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/vocabulary.h"

namespace clearhead {

// A tokenizer file as it was read, for saving.
struct TokenizerFile {
  std::string name;
  std::string content;
};

// True if the folder has files that Tokenizer::Load reads.
bool HasTokenizer(const std::filesystem::path& directory);

// Immutable; copies share one set of tables. Threads: all methods are safe from any thread.
class Tokenizer {
 public:
  // From a model folder: tokenizer.json, else vocab.json and merges.txt, else llama2.c's
  // tokenizer.bin (tokenizer_files.h). Throws Error naming the file and what is wrong with it.
  static Tokenizer Load(const std::filesystem::path& directory);

  // The same from the files' contents.
  static Tokenizer FromVocabularyAndMerges(std::string_view vocab_json,
                                           std::string_view merges_txt);
  static Tokenizer FromTokenizerJson(std::string_view tokenizer_json);
  static Tokenizer FromTokenizerBin(std::string_view tokenizer_bin);

  // From parts known to be consistent, and the files they came from; Error if a byte has no token.
  explicit Tokenizer(Vocabulary vocabulary, std::vector<TokenizerFile> files = {});

  // The text alone. Not what a model reads: that may start with a token of its own.
  std::vector<std::int32_t> Encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::kRecognise) const;

  // What a model reads: begin_of_text() if there is one, then the text.
  std::vector<std::int32_t> EncodePrompt(std::string_view text,
                                         SpecialTokens special = SpecialTokens::kRecognise) const;

  // Text that goes on after other text: no space is put before it.
  std::vector<std::int32_t> EncodeContinuation(
      std::string_view text, SpecialTokens special = SpecialTokens::kRecognise) const;

  // Encode in two steps, for callers that spread the work: Split finds the added tokens,
  // EncodeSegments appends the ids. A segment of ordinary text may be cut further where MayCut
  // allows; its later parts then have `continues`.
  std::vector<TextSegment> Split(std::string_view text, SpecialTokens special) const;
  bool MayCut(std::string_view text, std::size_t position) const;
  void EncodeSegments(std::span<const TextSegment> segments, SpecialTokens special,
                      std::vector<std::int32_t>* ids) const;

  // The exact bytes of the tokens, added ones included; of the space that SentencePiece puts before
  // a text remains what the tokenizer's own decoder leaves (LeadingSpace). Throws Error for an id
  // that is not in the vocabulary (models may have more embeddings than the tokenizer has tokens).
  std::string DecodeBytes(std::span<const std::int32_t> ids) const;
  // The way back from EncodePrompt: without begin-of-text at the start.
  std::string DecodePrompt(std::span<const std::int32_t> ids) const;

  // One token's bytes as they stand inside a text; nothing for tokens that give no text.
  std::string_view TokenBytes(std::int32_t id) const;

  // One token for people: valid UTF-8, with U+FFFD for what is not (ToValidUtf8), and the names of
  // tokens that give no text.
  std::string TokenText(std::int32_t id) const;

  std::int32_t vocabulary_size() const;
  // The token that comes first in everything the model reads, if its tokenizer says so.
  std::optional<std::int32_t> begin_of_text() const;
  std::optional<std::int32_t> end_of_text() const;
  std::optional<std::int32_t> FindToken(std::string_view bytes) const;
  const Vocabulary& vocabulary() const;

  // Writes files that Load reads as this tokenizer: vocab.json and merges.txt for GPT-2's rules,
  // else the files it came from. Throws Error if there are none, or if the folder holds a file that
  // Load would prefer.
  void Save(const std::filesystem::path& directory) const;

 private:
  struct Tables;
  class Encoder;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace clearhead
