// SPDX-License-Identifier: MIT
#include "text/vocabulary_reader.h"

#include <algorithm>
#include <unordered_set>

#include "core/json.h"
#include "text/normalize.h"
#include "text/utf8.h"

namespace clearhead {

std::string Shorten(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = ToValidUtf8(text.substr(0, kShown));
  if (text.size() > kShown) shown += "...";
  return shown;
}

std::string Quote(std::string_view text) { return ToText(Json(Shorten(text)), /*indent=*/-1); }

void FailParse(NamedText file, std::size_t byte) {
  const std::string_view before = file.text.substr(0, std::min(byte, file.text.size()));
  Fail("{}: not valid JSON at line {}", file.name,
       1 + std::count(before.begin(), before.end(), '\n'));
}

std::vector<const WrittenToken*> InOrder(const std::vector<WrittenToken>& entries,
                                         std::string_view name) {
  const std::size_t count = entries.size();
  if (count > static_cast<std::size_t>(kMaxVocabulary)) {
    Fail("{}: {} tokens; at most {} are supported", name, count, kMaxVocabulary);
  }
  std::vector<const WrittenToken*> by_id(count, nullptr);
  for (const WrittenToken& entry : entries) {
    if (entry.id < 0 || entry.id >= static_cast<std::int64_t>(count)) {
      Fail("{}: token {} has an id outside 0..{}, the range for {} tokens", name,
           Quote(entry.token), static_cast<std::int64_t>(count) - 1, count);
    }
    const WrittenToken*& place = by_id[entry.id];
    if (place != nullptr) {
      Fail("{}: id {} belongs to two tokens, {} and {}", name, entry.id, Quote(place->token),
           Quote(entry.token));
    }
    place = &entry;
  }
  return by_id;
}

void FillByteLevel(const std::vector<WrittenToken>& entries, std::string_view name,
                   Vocabulary* vocabulary) {
  const std::vector<const WrittenToken*> by_id = InOrder(entries, name);
  const std::size_t count = by_id.size();
  std::vector<bool> is_added(count);
  for (const AddedToken& token : vocabulary->added) is_added.at(token.id) = true;
  std::unordered_set<std::string_view> alike;  // tokens whose bytes another token has, too
  std::vector<std::int32_t> preferred;
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string& token = by_id[i]->token;
    if (token.empty()) Fail("{}: the token with id {} is empty", name, id);
    const std::optional<std::string> bytes = is_added[i] ? std::nullopt : SymbolsToBytes(token);
    const std::string& content = bytes ? *bytes : token;
    if (!bytes) vocabulary->literal.push_back(id);
    if (vocabulary->tokens.Add(content)) continue;
    // The same bytes in two ways of writing: one of the tokens stands for its characters. Merging
    // makes, and Find gives, the other.
    const std::int32_t other = *vocabulary->tokens.Find(content);
    if (by_id[other]->token == token || !alike.insert(token).second) {
      Fail("{}: token {} appears twice", name, Quote(token));
    }
    if (bytes) preferred.push_back(id);
  }
  for (const std::int32_t id : preferred) vocabulary->tokens.Prefer(id);
}

namespace {

// The byte that "<0x0A>" names; -1 for other tokens.
int NamedByte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'A' || c > 'F')) return -1;
    byte = byte * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return byte;
}

}  // namespace

void FillCharacters(const std::vector<WrittenToken>& entries, std::string_view name,
                    Vocabulary* vocabulary) {
  const std::vector<const WrittenToken*> by_id = InOrder(entries, name);
  std::vector<bool> is_added(by_id.size());
  for (const AddedToken& token : vocabulary->added) is_added.at(token.id) = true;
  vocabulary->byte_tokens.assign(256, -1);
  std::vector<std::int32_t> preferred;
  for (std::size_t i = 0; i < by_id.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string& token = by_id[i]->token;
    if (token.empty()) Fail("{}: the token with id {} is empty", name, id);
    const int byte = NamedByte(token);
    if (byte >= 0) {
      const char c = static_cast<char>(byte);
      vocabulary->byte_tokens[byte] = id;
      vocabulary->tokens.Add({&c, 1});
      vocabulary->literal.push_back(id);
    } else if (is_added[i] || token.find(' ') != std::string::npos) {
      vocabulary->tokens.Add(token);
      vocabulary->literal.push_back(id);
    } else if (!vocabulary->tokens.Add(MarksToSpaces(token))) {
      preferred.push_back(id);  // written tokens differ, so the other one is a literal
    }
  }
  for (const std::int32_t id : preferred) vocabulary->tokens.Prefer(id);
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary->byte_tokens[byte] < 0) {
      Fail("{}: no token <0x{:02X}>; byte_fallback needs all 256", name, byte);
    }
  }
}

bool TokensCrossWords(const Vocabulary& vocabulary) {
  for (std::int32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string_view bytes = vocabulary.tokens.Bytes(id);
    const std::size_t word = bytes.find_first_not_of(' ');
    if (word == std::string_view::npos || bytes.find(' ', word) == std::string_view::npos) continue;
    if (vocabulary.IsOrdinary(id)) return true;
  }
  return false;
}

void AddEndOfText(Vocabulary* vocabulary) {
  const std::optional<std::int32_t> id = vocabulary->tokens.Find(kEndOfText);
  if (id && !vocabulary->EndOfText()) {
    vocabulary->added.push_back({std::string(kEndOfText), *id, true});
  }
}

}  // namespace clearhead
