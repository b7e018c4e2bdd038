// SPDX-License-Identifier: MIT
// SentencePiece's way to merge a word: of all neighbouring pieces the two whose joined text is the
// piece with the highest score are joined (leftmost first), until no joined text is a piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace clearhead {

// Threads: const, share it freely; each thread merges with its own PieceMerger.
class PieceTable {
 public:
  static constexpr std::uint32_t kNone = ~0u;

  // Lifetime: the vocabulary, which has scores and byte tokens, must outlive it.
  explicit PieceTable(const Vocabulary& vocabulary);

  struct Piece {
    std::int32_t id = -1;
    std::uint32_t priority = kNone;  // lower goes first; equal scores have equal priorities
  };
  // The ordinary piece with this text; kNone if there is none. Byte tokens are not pieces.
  Piece Find(std::string_view text) const;

  std::int32_t ByteToken(char byte) const {
    return vocabulary_.byte_tokens[static_cast<unsigned char>(byte)];
  }

 private:
  const Vocabulary& vocabulary_;
  std::vector<std::uint32_t> priorities_;
  std::size_t longest_ = 0;
};

// The merge loop with its working memory: n log n in the length of the word. One per thread.
class PieceMerger {
 public:
  explicit PieceMerger(const PieceTable& pieces) : pieces_(pieces) {}

  // Appends the word's tokens. A character that is no piece gives the tokens of its bytes, which
  // never join anything.
  void Append(std::string_view word, std::vector<std::int32_t>* ids);

 private:
  struct Symbol {
    std::int32_t id;
    std::uint32_t start;
    std::uint32_t length;  // 0: removed
    std::uint32_t previous;
    std::uint32_t next;
    bool joins;
  };
  struct Candidate {
    std::uint64_t order;   // priority << 32 | left symbol: smallest first
    std::uint32_t length;  // of the joined text, by which outdated candidates are known
    std::int32_t id;
    bool operator>(const Candidate& other) const { return order > other.order; }
  };
  void Push(std::uint32_t left, std::uint32_t right);

  const PieceTable& pieces_;
  std::string_view word_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;  // heap
};

}  // namespace clearhead
