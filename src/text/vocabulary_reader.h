// SPDX-License-Identifier: MIT
// What the readers of vocab.json, tokenizer.json and tokenizer.bin share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/bpe.h"
#include "text/byte_map.h"
#include "text/tokenizer_files.h"
#include "text/vocabulary.h"

namespace clearhead {

// For messages: one line, printable, not endless.
std::string Shorten(std::string_view text);
std::string Quote(std::string_view text);

[[noreturn]] void FailParse(NamedText file, std::size_t byte);

// A token as written in a file.
struct WrittenToken {
  std::string token;
  std::int64_t id;
};

// Pointers to the entries in the order of their ids, which must be 0..n-1, each once.
std::vector<const WrittenToken*> InOrder(const std::vector<WrittenToken>& entries,
                                         std::string_view name);

// Fills in the tokens of a byte-level vocabulary. Tokens in `added` stand for their characters,
// others for bytes in GPT-2's alphabet. A token of other characters cannot come from merging bytes;
// it stands for its characters too, so that models with such entries load.
void FillByteLevel(const std::vector<WrittenToken>& entries, std::string_view name,
                   Vocabulary* vocabulary);

// The same for a vocabulary of characters, where U+2581 is a space and "<0x0A>" a byte; all 256
// must be there. A token that the normalised text cannot hold stands for its characters.
void FillCharacters(const std::vector<WrittenToken>& entries, std::string_view name,
                    Vocabulary* vocabulary);

// True if some token that merging may make has a space after something else. If none has, merging
// word by word (WordRule::kSpaceRuns) is the same as merging the text as a whole.
bool TokensCrossWords(const Vocabulary& vocabulary);

// Makes "<|endoftext|>" an added token if the vocabulary has it.
void AddEndOfText(Vocabulary* vocabulary);

// Turns pairs of written tokens into merges, refusing what the vocabulary does not have. `find`
// maps a written token to its id, `where` names the merge in messages.
template <typename Find>
class MergeReader {
 public:
  MergeReader(Find find, std::size_t most_merges, std::vector<Merge>* merges)
      : find_(std::move(find)), ranks_(most_merges), merges_(merges) {
    merges_->reserve(most_merges);
  }

  template <typename Where>
  void Add(std::string_view left, std::string_view right, const Where& where) {
    const std::int32_t left_id = IdOf(left, where);
    const std::int32_t right_id = IdOf(right, where);
    const auto rank = static_cast<std::uint32_t>(merges_->size());
    if (!ranks_.Insert(left_id, right_id, rank)) {
      Fail("{}: the merge of {} and {} appears twice", where(), Quote(left), Quote(right));
    }
    merges_->push_back({left_id, right_id, IdOf(std::string(left).append(right), where)});
  }

 private:
  template <typename Where>
  std::int32_t IdOf(std::string_view token, const Where& where) const {
    const std::optional<std::int32_t> id = find_(token);
    if (!id) Fail("{}: {} is not in the vocabulary", where(), Quote(token));
    return *id;
  }

  Find find_;
  MergeRanks ranks_;  // to notice repeats
  std::vector<Merge>* merges_;
};

// Finds tokens that are written in GPT-2's alphabet.
inline auto ByteLevelFinder(const TokenTable& tokens) {
  return [&tokens](std::string_view token) -> std::optional<std::int32_t> {
    const std::optional<std::string> bytes = SymbolsToBytes(token);
    if (!bytes || bytes->empty()) return std::nullopt;
    return tokens.Find(*bytes);
  };
}

}  // namespace clearhead
