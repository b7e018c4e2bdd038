// SPDX-License-Identifier: MIT
// GPT-2's byte-level BPE tokenizer: text to token ids and back.
//
// Any bytes can be encoded, UTF-8 or not, and DecodeBytes(Encode(x)) == x for all of them.
// pretokenize.h says how text is split into words, bpe.h how a word becomes tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace clearhead {

enum class SpecialTokens {
  kRecognise,  // "<|endoftext|>" in the text is the special token
  kAsText,     // it is thirteen characters like any others
};

// A stretch of text: an added token where `token` has its id, else ordinary text.
struct TextSegment {
  std::string_view text;
  std::optional<std::int32_t> token;
};

// Immutable; copies share one set of tables. Threads: all methods are safe from any thread.
class Tokenizer {
 public:
  // From a Hugging Face model folder: vocab.json and merges.txt, else tokenizer.json. Throws Error
  // naming the file and what is wrong with it.
  static Tokenizer Load(const std::filesystem::path& directory);

  // The same from the files' contents.
  static Tokenizer FromVocabularyAndMerges(std::string_view vocab_json,
                                           std::string_view merges_txt);
  static Tokenizer FromTokenizerJson(std::string_view tokenizer_json);

  // From parts known to be consistent; Error if a byte has no token.
  explicit Tokenizer(Vocabulary vocabulary);

  std::vector<std::int32_t> Encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::kRecognise) const;

  // Encode in two steps, for callers that spread the work: Split finds the added tokens (leftmost
  // first, the longest of those that start at one place), EncodeSegments appends the ids. A segment
  // of ordinary text may be cut further where IsSafeCut allows.
  std::vector<TextSegment> Split(std::string_view text, SpecialTokens special) const;
  void EncodeSegments(std::span<const TextSegment> segments, std::vector<std::int32_t>* ids) const;

  // The exact bytes. Throws Error for an id that is not in the vocabulary (models may have more
  // embeddings than the tokenizer has tokens).
  std::string DecodeBytes(std::span<const std::int32_t> ids) const;
  std::string_view TokenBytes(std::int32_t id) const;

  // One token as valid UTF-8, with U+FFFD for what is not (ToValidUtf8).
  std::string TokenText(std::int32_t id) const;

  std::int32_t vocabulary_size() const;
  std::optional<std::int32_t> end_of_text() const;
  std::optional<std::int32_t> FindToken(std::string_view bytes) const;
  const Vocabulary& vocabulary() const;

  // Writes vocab.json and merges.txt, which Hugging Face's GPT-2 tokenizers and Load read. Throws
  // Error if there are added tokens other than "<|endoftext|>", which these files cannot tell from
  // others.
  void Save(const std::filesystem::path& directory) const;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace clearhead
