// SPDX-License-Identifier: MIT
// Small tokenizers, and odd bytes to try them on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/random.h"
#include "text/byte_map.h"
#include "text/tokenizer.h"

namespace clearhead {

// A vocabulary of the 256 bytes followed by `more` (tokens as bytes), before it is JSON.
inline std::vector<std::string> ByteTokens(const std::vector<std::string>& more = {}) {
  std::vector<std::string> tokens;
  for (const unsigned char byte : BytesInSymbolOrder())
    tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

inline std::string VocabJson(const std::vector<std::string>& tokens) {
  Json vocab = Json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) vocab[BytesToSymbols(tokens[id])] = id;
  return ToText(vocab);
}

// Words of a small language with a few awkward ones among them.
inline std::string MakeText(std::size_t bytes, std::uint64_t seed) {
  static const std::vector<std::string> kWords = {
      "the",      "then",   "these", "other", "don't", "she'll", "Ünïcode",
      "日本語",   "\u3000", "1984",  "...!",  "\n\n",  "\t",     "  ",
      "🙂👍", "naïve",  "a",     "\r\n",  "<|",    "x=1;"};
  RandomStream random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random.Below(kWords.size())];
    if (random.Below(5) != 0) text += ' ';
  }
  return text;
}

inline std::string RandomBytes(std::size_t count, std::uint64_t seed) {
  RandomStream random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(random.Below(256));
  return bytes;
}

// Bytes in which UTF-8 lead and continuation bytes, spaces and letters are common.
inline std::string RandomNearUtf8(std::size_t count, std::uint64_t seed) {
  static constexpr unsigned char kBytes[] = {0x00, ' ',  ' ',  '\n', 'a',  'Z',  '7',  '\'', 's',
                                             '<',  0x80, 0x85, 0xA0, 0xBF, 0xC2, 0xC3, 0xE0, 0xE2,
                                             0xE3, 0xED, 0xEF, 0xF0, 0x9F, 0x99, 0x82, 0xF4, 0xFF};
  RandomStream random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i)
    bytes += static_cast<char>(kBytes[random.Below(sizeof kBytes)]);
  return bytes;
}

}  // namespace clearhead
