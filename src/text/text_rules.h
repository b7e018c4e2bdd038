// SPDX-License-Identifier: MIT
// What tokenizers of different families do differently, as plain settings. The defaults are
// GPT-2's.
#pragma once

#include <string_view>

namespace clearhead {

// SentencePiece writes a space in its tokens as U+2581.
inline constexpr std::string_view kSpaceMark = "\u2581";

// How text falls into words; merges never cross from one into the next.
enum class WordRule {
  kGpt2,        // pretokenize.h has the patterns
  kLlama3,      // also OLMo 2
  kQwen2,       // as Llama 3, but digits stand alone
  kSpaceRuns,   // a word starts at a space that follows something else
  kEverySpace,  // a word starts at every space
  kWhole,       // no splitting
};

// What merging starts from.
enum class SymbolRule {
  kBytes,       // every byte is a token
  kCharacters,  // every character that is a token; the bytes of the others
};

enum class MergeRule {
  kRanks,   // the listed pair that comes first in the list (bpe.h)
  kScores,  // the pair whose joined piece has the highest score (piece_merge.h)
};

// Where a space is put before a stretch of text (what lies between two added tokens).
enum class PrefixRule {
  kNone,
  kAlways,       // part of the normaliser: added tokens are looked for after it
  kUnlessSpace,  // if the stretch does not start with one
  kFirst,        // the same, but only where the whole text starts
};

// The way back: what becomes of the space that the prefix rule put there.
enum class LeadingSpace {
  kKept,
  kDroppedAfterBegin,  // llama2.c: one space of the token right after begin-of-text
  kDropped,            // the text's first character, if it is a space
  kFirstTokenHasNone,  // every space of the first token
};

struct TextRules {
  bool nfc = false;  // Unicode's normalization form C first
  WordRule words = WordRule::kGpt2;
  bool whole_words = false;  // a word that is a token becomes it at once, whatever the merges say
  SymbolRule symbols = SymbolRule::kBytes;
  MergeRule merging = MergeRule::kRanks;
  bool marks_are_spaces = false;  // U+2581 in the text counts as a space
  PrefixRule prefix = PrefixRule::kNone;
  LeadingSpace leading = LeadingSpace::kKept;

  bool operator==(const TextRules&) const = default;
};

}  // namespace clearhead
