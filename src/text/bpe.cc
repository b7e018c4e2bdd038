// SPDX-License-Identifier: MIT
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "core/error.h"
#include "core/random.h"

namespace clearhead {
namespace {

constexpr std::uint32_t kEnd = ~0u;

std::uint64_t PairKey(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

MergeRanks::MergeRanks(std::size_t most_merges) : slots_(std::bit_ceil(most_merges * 2 + 2)) {}

MergeRanks::MergeRanks(std::span<const Merge> merges) : MergeRanks(merges.size()) {
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto rank = static_cast<std::uint32_t>(i);
    Check(Insert(merges[i].left, merges[i].right, rank), "a merge appears twice");
  }
}

// The slot that holds the pair, or the empty one where it belongs.
std::size_t MergeRanks::SlotOf(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = Mix64(pair) & mask;
  while (slots_[slot].rank != kNone && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

bool MergeRanks::Insert(std::int32_t left, std::int32_t right, std::uint32_t rank) {
  const std::uint64_t pair = PairKey(left, right);
  Slot& slot = slots_[SlotOf(pair)];
  if (slot.rank != kNone) return false;
  slot = {pair, rank};
  return true;
}

std::uint32_t MergeRanks::Find(std::int32_t left, std::int32_t right) const {
  return slots_[SlotOf(PairKey(left, right))].rank;
}

void WordMerger::Push(std::uint32_t left, std::uint32_t right) {
  const std::uint32_t rank = ranks_.Find(symbols_[left].id, symbols_[right].id);
  if (rank == MergeRanks::kNone) return;
  queue_.push_back(static_cast<std::uint64_t>(rank) << 32 | left);
}

void WordMerger::Append(std::string_view word, std::vector<std::int32_t>* ids) {
  symbols_.resize(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    symbols_[i].id = byte_ids_[static_cast<unsigned char>(word[i])];
  }
  MergeSymbols(ids);
}

void WordMerger::Append(std::span<const std::int32_t> symbols, std::vector<std::int32_t>* ids) {
  symbols_.resize(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) symbols_[i].id = symbols[i];
  MergeSymbols(ids);
}

void WordMerger::MergeSymbols(std::vector<std::int32_t>* ids) {
  Check(symbols_.size() < kEnd, "a word of 4 GiB");
  const auto size = static_cast<std::uint32_t>(symbols_.size());
  for (std::uint32_t i = 0; i < size; ++i) {
    symbols_[i].previous = i == 0 ? kEnd : i - 1;
    symbols_[i].next = i + 1 == size ? kEnd : i + 1;
  }
  queue_.clear();
  for (std::uint32_t i = 0; i + 1 < size; ++i) Push(i, i + 1);
  std::make_heap(queue_.begin(), queue_.end(), std::greater<>());

  while (!queue_.empty()) {
    std::pop_heap(queue_.begin(), queue_.end(), std::greater<>());
    const Merge& merge = merges_[queue_.back() >> 32];
    const auto left = static_cast<std::uint32_t>(queue_.back());
    queue_.pop_back();
    // Entries are not withdrawn when a neighbour is joined; they just no longer fit.
    const std::uint32_t right = symbols_[left].next;
    if (symbols_[left].id != merge.left || right == kEnd || symbols_[right].id != merge.right) {
      continue;
    }
    symbols_[left].id = merge.result;
    symbols_[right].id = -1;
    const std::uint32_t next = symbols_[right].next;
    symbols_[left].next = next;
    const auto push = [&](std::uint32_t a, std::uint32_t b) {
      const std::size_t before = queue_.size();
      Push(a, b);
      if (queue_.size() > before) std::push_heap(queue_.begin(), queue_.end(), std::greater<>());
    };
    if (next != kEnd) {
      symbols_[next].previous = left;
      push(left, next);
    }
    if (symbols_[left].previous != kEnd) push(symbols_[left].previous, left);
  }
  for (std::uint32_t i = 0; i < size; i = symbols_[i].next) {
    ids->push_back(symbols_[i].id);
    if (symbols_[i].next == kEnd) break;
  }
}

}  // namespace clearhead
