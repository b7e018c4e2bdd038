// SPDX-License-Identifier: MIT
#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

namespace clearhead {
namespace {

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<Wanted> wanted) : wanted_(std::move(wanted)) {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    by_first_byte_[static_cast<unsigned char>(wanted_[i].content[0])].push_back(
        static_cast<std::int32_t>(i));
  }
  for (std::vector<std::int32_t>& bucket : by_first_byte_) {
    std::stable_sort(bucket.begin(), bucket.end(), [&](std::int32_t a, std::int32_t b) {
      return wanted_[a].content.size() > wanted_[b].content.size();
    });
  }
}

// The token that starts right here, or null.
const AddedTokenFinder::Wanted* AddedTokenFinder::Match(std::string_view text,
                                                        SpecialTokens special) const {
  for (const std::int32_t i : by_first_byte_[static_cast<unsigned char>(text[0])]) {
    const Wanted& token = wanted_[i];
    if (token.special && special == SpecialTokens::kAsText) continue;
    if (text.starts_with(token.content)) return &token;
  }
  return nullptr;
}

void AddedTokenFinder::Split(const TextSegment& segment, SpecialTokens special,
                             std::vector<TextSegment>* parts) const {
  const std::string_view text = segment.text;
  std::size_t start = 0;
  const auto add = [&](std::size_t begin, std::size_t end, std::optional<std::int32_t> token) {
    if (begin == end) return;
    parts->push_back({text.substr(begin, end - begin), token, segment.first && begin == 0,
                      segment.continues && begin == 0});
  };
  for (std::size_t i = 0; i < text.size() && !empty();) {
    const Wanted* token = Match(text.substr(i), special);
    if (token == nullptr) {
      ++i;
      continue;
    }
    const std::size_t end = i + token->content.size();
    add(start, i, std::nullopt);
    add(i, end, token->id);
    i = start = end;
  }
  add(start, text.size(), std::nullopt);
}

bool AddedTokenFinder::HasInnerSpace() const {
  return std::any_of(wanted_.begin(), wanted_.end(), [](const Wanted& token) {
    for (std::size_t i = 1; i < token.content.size(); ++i) {
      if (IsAsciiSpace(token.content[i]) && !IsAsciiSpace(token.content[i - 1])) return true;
    }
    return false;
  });
}

}  // namespace clearhead
