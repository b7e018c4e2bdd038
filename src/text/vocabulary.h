// SPDX-License-Identifier: MIT
// What a tokenizer is made of, however it was stored: the tokens' bytes, the merges, the added
// tokens, the rules of its family.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_rules.h"

namespace clearhead {

// In our tokenizers and in GPT-2's: the end of a document.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// More tokens than any vocabulary has; a larger id is a broken file.
inline constexpr std::int32_t kMaxVocabulary = 1 << 24;

// Two neighbouring tokens that become one. Its place in the list is its rank: lower goes first.
struct Merge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

// A token that is found in the text before splitting and merging.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special;  // false: found even where special tokens are ordinary text
  // Looked for after the text has been normalised, and after the tokens that are not.
  bool normalized = false;
};

// Ids 0..size()-1 and their bytes, both ways.
class TokenTable {
 public:
  // Appends a token with the next id. If the bytes are taken, Find keeps giving the earlier id.
  // Returns false in that case.
  bool Add(std::string_view bytes);

  // Makes Find give this id for its bytes (until the next Add).
  void Prefer(std::int32_t id);

  std::int32_t size() const { return static_cast<std::int32_t>(ends_.size()); }
  std::string_view Bytes(std::int32_t id) const;
  std::optional<std::int32_t> Find(std::string_view bytes) const;

 private:
  std::size_t SlotOf(std::string_view bytes) const;
  void Grow();

  std::string bytes_;                // all tokens, end to end
  std::vector<std::uint64_t> ends_;  // of each token in bytes_
  std::vector<std::int32_t> slots_;  // open addressing; id, or -1 for empty
};

struct Vocabulary {
  TokenTable tokens;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  // Tokens (of id order) whose characters are not the byte alphabet's and stand for themselves.
  std::vector<std::int32_t> literal;
  TextRules rules;
  std::vector<std::int32_t> byte_tokens;      // SymbolRule::kCharacters: the token of each byte
  std::vector<float> scores;                  // MergeRule::kScores: of each token
  std::vector<std::int32_t> silent;           // of id order: tokens that give no text
  std::optional<std::int32_t> begin_of_text;  // what a text starts with
  // What its folder calls the end; EndOfText() prefers the names below.
  std::optional<std::int32_t> end_of_text;

  // The end of a document: the added token "<|endoftext|>", "<|end_of_text|>" or "</s>", else
  // `end_of_text`.
  std::optional<std::int32_t> EndOfText() const;
  // True if the token's bytes may come about by merging: it is no added token and no odd entry.
  bool IsOrdinary(std::int32_t id) const;
};

// The id of every byte; throws Error naming `source` and the first byte without a token.
std::array<std::int32_t, 256> FindByteTokens(const TokenTable& tokens, std::string_view source);

}  // namespace clearhead
