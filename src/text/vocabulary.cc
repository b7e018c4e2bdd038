// SPDX-License-Identifier: MIT
#include "text/vocabulary.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "text/byte_map.h"

namespace clearhead {

std::string_view TokenTable::Bytes(std::int32_t id) const {
  const std::uint64_t begin = id == 0 ? 0 : ends_[id - 1];
  return std::string_view(bytes_).substr(begin, ends_[id] - begin);
}

// The slot that holds these bytes, or the empty one where they belong.
std::size_t TokenTable::SlotOf(std::string_view bytes) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>()(bytes) & mask;
  while (slots_[slot] >= 0 && Bytes(slots_[slot]) != bytes) slot = (slot + 1) & mask;
  return slot;
}

void TokenTable::Grow() {
  slots_.assign(slots_.empty() ? 1024 : slots_.size() * 2, -1);
  for (std::int32_t id = 0; id < size(); ++id) {
    std::int32_t& slot = slots_[SlotOf(Bytes(id))];
    if (slot < 0) slot = id;
  }
}

bool TokenTable::Add(std::string_view bytes) {
  if (ends_.size() * 2 >= slots_.size()) Grow();
  std::int32_t& slot = slots_[SlotOf(bytes)];
  const bool is_new = slot < 0;
  if (is_new) slot = size();
  bytes_.append(bytes);
  ends_.push_back(bytes_.size());
  return is_new;
}

void TokenTable::Prefer(std::int32_t id) { slots_[SlotOf(Bytes(id))] = id; }

std::optional<std::int32_t> TokenTable::Find(std::string_view bytes) const {
  if (slots_.empty()) return std::nullopt;
  const std::int32_t id = slots_[SlotOf(bytes)];
  if (id < 0) return std::nullopt;
  return id;
}

std::optional<std::int32_t> Vocabulary::EndOfText() const {
  for (const std::string_view name :
       {kEndOfText, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    for (const AddedToken& token : added) {
      if (token.content == name) return token.id;
    }
  }
  return end_of_text;
}

bool Vocabulary::IsOrdinary(std::int32_t id) const {
  return !std::binary_search(literal.begin(), literal.end(), id);
}

std::array<std::int32_t, 256> FindByteTokens(const TokenTable& tokens, std::string_view source) {
  std::array<std::int32_t, 256> ids{};
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::optional<std::int32_t> id = tokens.Find(std::string_view(&c, 1));
    if (!id) {
      Fail("{}: no token for byte 0x{:02X} ('{}'); a byte-level vocabulary has all 256", source,
           byte, BytesToSymbols(std::string_view(&c, 1)));
    }
    ids[byte] = *id;
  }
  return ids;
}

}  // namespace clearhead
