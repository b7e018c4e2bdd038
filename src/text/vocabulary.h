// SPDX-License-Identifier: MIT
// What a tokenizer is made of, however it was stored: the tokens' bytes, the merges, the added
// tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

  std::optional<std::int32_t> EndOfText() const;
};

// The id of every byte; throws Error naming `source` and the first byte without a token.
std::array<std::int32_t, 256> FindByteTokens(const TokenTable& tokens, std::string_view source);

}  // namespace clearhead
