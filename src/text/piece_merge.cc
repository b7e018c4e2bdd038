// SPDX-License-Identifier: MIT
#include "text/piece_merge.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

constexpr std::uint32_t kEnd = ~0u;

}  // namespace

PieceTable::PieceTable(const Vocabulary& vocabulary)
    : vocabulary_(vocabulary), priorities_(vocabulary.scores.size(), kNone) {
  std::vector<std::int32_t> ordinary;
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(priorities_.size()); ++id) {
    if (vocabulary.IsOrdinary(id)) ordinary.push_back(id);
  }
  const std::vector<float>& scores = vocabulary.scores;
  std::sort(ordinary.begin(), ordinary.end(),
            [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
  std::uint32_t priority = 0;
  for (std::size_t i = 0; i < ordinary.size(); ++i) {
    if (i > 0 && scores[ordinary[i]] != scores[ordinary[i - 1]]) ++priority;
    priorities_[ordinary[i]] = priority;
    longest_ = std::max(longest_, vocabulary.tokens.Bytes(ordinary[i]).size());
  }
}

PieceTable::Piece PieceTable::Find(std::string_view text) const {
  if (text.size() > longest_) return {};
  const std::optional<std::int32_t> id = vocabulary_.tokens.Find(text);
  if (!id) return {};
  return {*id, priorities_[*id]};
}

void PieceMerger::Push(std::uint32_t left, std::uint32_t right) {
  const Symbol& a = symbols_[left];
  const Symbol& b = symbols_[right];
  if (!a.joins || !b.joins) return;
  const std::uint32_t length = a.length + b.length;
  const PieceTable::Piece piece = pieces_.Find(word_.substr(a.start, length));
  if (piece.priority == PieceTable::kNone) return;
  queue_.push_back({static_cast<std::uint64_t>(piece.priority) << 32 | left, length, piece.id});
}

void PieceMerger::Append(std::string_view word, std::vector<std::int32_t>* ids) {
  Check(word.size() < kEnd, "a word of 4 GiB");
  word_ = word;
  symbols_.clear();
  const auto add = [&](std::int32_t id, std::size_t start, std::size_t length, bool joins) {
    const auto place = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back({id, static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(length),
                        place == 0 ? kEnd : place - 1, place + 1, joins});
  };
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = NextUtf8Part(word, i).length;
    const PieceTable::Piece piece = pieces_.Find(word.substr(i, length));
    if (piece.priority != PieceTable::kNone) {
      add(piece.id, i, length, true);
    } else {
      for (std::size_t k = i; k < i + length; ++k) add(pieces_.ByteToken(word[k]), k, 1, false);
    }
    i += length;
  }
  if (symbols_.empty()) return;
  symbols_.back().next = kEnd;

  queue_.clear();
  for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) Push(i, i + 1);
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());
  const auto push = [&](std::uint32_t left, std::uint32_t right) {
    const std::size_t before = queue_.size();
    Push(left, right);
    if (queue_.size() > before) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
  };
  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const Candidate best = queue_.back();
    queue_.pop_back();
    const auto left = static_cast<std::uint32_t>(best.order);
    Symbol& a = symbols_[left];
    // Candidates are not withdrawn when a neighbour is joined. A symbol always starts where it did:
    // the same length is the same text.
    if (a.length == 0 || a.next == kEnd || a.length + symbols_[a.next].length != best.length) {
      continue;
    }
    Symbol& b = symbols_[a.next];
    a.id = best.id;
    a.length = best.length;
    a.next = b.next;
    b.length = 0;
    if (a.next != kEnd) {
      symbols_[a.next].previous = left;
      push(left, a.next);
    }
    if (a.previous != kEnd) push(a.previous, left);
  }
  for (std::uint32_t i = 0; i != kEnd; i = symbols_[i].next) ids->push_back(symbols_[i].id);
}

}  // namespace clearhead
