// SPDX-License-Identifier: MIT
// Byte-pair encoding of one word: of all neighbouring pairs the one with the lowest rank is joined
// (leftmost first), until no pair has a rank.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace clearhead {

// (left, right) to rank. Threads: const lookups are safe.
class MergeRanks {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  explicit MergeRanks(std::size_t most_merges);
  explicit MergeRanks(std::span<const Merge> merges);

  // False, and nothing done, if the pair is there already.
  bool Insert(std::int32_t left, std::int32_t right, std::uint32_t rank);

  std::uint32_t Find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::uint32_t rank = kNone;
  };
  std::size_t SlotOf(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
};

// The merge loop with its working memory: n log n in the length of the word. One per thread.
class WordMerger {
 public:
  // Lifetime: all three must outlive it.
  WordMerger(std::span<const Merge> merges, const MergeRanks& ranks,
             const std::array<std::int32_t, 256>& byte_ids)
      : merges_(merges), ranks_(ranks), byte_ids_(byte_ids) {}

  // Appends the tokens of a word of bytes.
  void Append(std::string_view word, std::vector<std::int32_t>* ids);
  // The same from the tokens that merging starts with.
  void Append(std::span<const std::int32_t> symbols, std::vector<std::int32_t>* ids);

 private:
  // The word as a list of tokens, in order; joining removes the right one.
  struct Symbol {
    std::int32_t id;  // -1: removed
    std::uint32_t previous;
    std::uint32_t next;
  };
  void Push(std::uint32_t left, std::uint32_t right);
  void MergeSymbols(std::vector<std::int32_t>* ids);

  std::span<const Merge> merges_;
  const MergeRanks& ranks_;
  const std::array<std::int32_t, 256>& byte_ids_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t>
      queue_;  // heap, smallest first: rank << 32 | position of the left symbol
};

}  // namespace clearhead
