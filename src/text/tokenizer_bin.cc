// SPDX-License-Identifier: MIT
// llama2.c's tokenizer.bin. Numbers are little-endian, as everywhere (core/safetensors.h).
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>

#include "core/error.h"
#include "text/tokenizer_files.h"
#include "text/utf8.h"
#include "text/vocabulary_reader.h"

namespace clearhead {
namespace {

constexpr std::int32_t kBegin = 1, kEnd = 2, kFirstByte = 3;
constexpr std::int32_t kFirstPiece = kFirstByte + 256;

// Takes numbers and bytes from the front.
class BinReader {
 public:
  explicit BinReader(NamedText file) : file_(file) {}

  bool AtEnd() const { return position_ == file_.text.size(); }

  template <typename Number>
  Number Take(std::int32_t id) {
    Number number;
    std::memcpy(&number, TakeBytes(sizeof number, id).data(), sizeof number);
    return number;
  }

  std::string_view TakeBytes(std::size_t count, std::int32_t id) {
    if (count > file_.text.size() - position_) {
      Fail("{}: the file ends inside token {}; is it llama2.c's, and complete?", file_.name, id);
    }
    const std::string_view bytes = file_.text.substr(position_, count);
    position_ += count;
    return bytes;
  }

 private:
  NamedText file_;
  std::size_t position_ = 0;
};

// Exporters write a byte token as "<0x0A>", or as the character with the byte's number.
bool NamesByte(std::string_view written, int byte) {
  std::string character;
  if (byte < 0x80) {
    character += static_cast<char>(byte);
  } else {
    character += static_cast<char>(0xC0 | (byte >> 6));
    character += static_cast<char>(0x80 | (byte & 0x3F));
  }
  return written == character || written == fmt::format("<0x{:02X}>", byte);
}

// "\n<s>\n" as "<s>".
std::string_view WithoutLineEnds(std::string_view name) {
  while (name.starts_with('\n')) name.remove_prefix(1);
  while (name.ends_with('\n')) name.remove_suffix(1);
  return name;
}

}  // namespace

Vocabulary ReadTokenizerBin(NamedText file) {
  BinReader reader(file);
  Vocabulary vocabulary;
  const auto longest = reader.Take<std::int32_t>(0);
  if (longest < 1) {
    Fail("{}: the longest piece has {} bytes; this is not llama2.c's tokenizer.bin", file.name,
         longest);
  }
  // Pieces that repeat a byte token: the bytes come first in the file, but only stand in for
  // characters without a piece.
  std::unordered_map<std::string_view, std::int32_t> preferred;
  while (!reader.AtEnd()) {
    const std::int32_t id = vocabulary.tokens.size();
    if (id == kMaxVocabulary) {
      Fail("{}: more than {} tokens; at most so many are supported", file.name, kMaxVocabulary);
    }
    const auto score = reader.Take<float>(id);
    const auto length = reader.Take<std::int32_t>(id);
    if (!std::isfinite(score)) Fail("{}: token {} has no number as its score", file.name, id);
    if (length < 1 || length > longest) {
      Fail("{}: token {} has {} bytes; expected 1 to {}, the longest piece's", file.name, id,
           length, longest);
    }
    std::string_view bytes = reader.TakeBytes(static_cast<std::size_t>(length), id);
    if (FindIllFormed(bytes) < bytes.size()) {
      Fail("{}: token {}, {}, is not UTF-8", file.name, id, Quote(bytes));
    }
    vocabulary.scores.push_back(score);
    if (id >= kFirstPiece) {
      if (vocabulary.tokens.Add(bytes)) continue;
      std::int32_t other = *vocabulary.tokens.Find(bytes);
      if (other < kFirstPiece) other = preferred.try_emplace(bytes, id).first->second;
      if (other == id) continue;
      Fail("{}: the piece {} appears twice, with ids {} and {}", file.name, Quote(bytes), other,
           id);
    }
    vocabulary.literal.push_back(id);
    if (id >= kFirstByte) {
      const char byte = static_cast<char>(id - kFirstByte);
      if (!NamesByte(bytes, id - kFirstByte)) {
        Fail("{}: token {} is {}; expected the byte 0x{:02X}", file.name, id, Quote(bytes),
             id - kFirstByte);
      }
      vocabulary.byte_tokens.push_back(id);
      vocabulary.tokens.Add({&byte, 1});
    } else {
      const std::string_view name = WithoutLineEnds(bytes);
      vocabulary.tokens.Add(name.empty() ? bytes : name);
    }
  }
  if (vocabulary.tokens.size() < kFirstPiece) {
    Fail("{}: {} tokens; expected at least {}: unknown, begin, end and the 256 bytes", file.name,
         vocabulary.tokens.size(), kFirstPiece);
  }
  for (const auto& [piece, id] : preferred) vocabulary.tokens.Prefer(id);
  vocabulary.silent = {kBegin, kEnd};
  vocabulary.begin_of_text = kBegin;
  vocabulary.end_of_text = kEnd;
  vocabulary.rules = {.words = WordRule::kSpaceRuns,
                      .symbols = SymbolRule::kCharacters,
                      .merging = MergeRule::kScores,
                      .prefix = PrefixRule::kAlways,
                      .leading = LeadingSpace::kDroppedAfterBegin};
  if (TokensCrossWords(vocabulary)) vocabulary.rules.words = WordRule::kWhole;
  return vocabulary;
}

}  // namespace clearhead
