// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/piece_merge.h"
#include "text/pretokenize.h"
#include "text/tokenizer_files.h"
#include "text/utf8.h"

namespace clearhead {
namespace fs = std::filesystem;
namespace {

// What the normaliser makes of a stretch of text; nothing if it changes nothing.
std::optional<std::string> Normalise(const TextRules& rules, std::string_view text,
                                     bool continues) {
  std::optional<std::string> changed;
  if (rules.nfc) changed = ToNfc(text);
  if (rules.marks_are_spaces) {
    const std::string_view now = changed ? std::string_view(*changed) : text;
    if (now.find(kSpaceMark) != std::string_view::npos) changed = MarksToSpaces(now);
  }
  if (rules.prefix == PrefixRule::kAlways && !continues) {
    if (!changed) changed = text;
    changed->insert(0, 1, ' ');
  }
  return changed;
}

// Added tokens as they are looked for: in the text as it came, or as the normaliser left it.
AddedTokenFinder MakeFinder(const Vocabulary& vocabulary, bool normalised) {
  std::vector<AddedTokenFinder::Wanted> wanted;
  for (const AddedToken& token : vocabulary.added) {
    if (token.normalized != normalised) continue;
    std::optional<std::string> changed;
    if (normalised) changed = Normalise(vocabulary.rules, token.content, /*continues=*/false);
    wanted.push_back({changed ? *changed : token.content, token.id, token.special});
  }
  return AddedTokenFinder(std::move(wanted));
}

// Words seen before in one call, with where their ids are in the output. Text repeats its words: a
// direct-mapped table of the last ones spares most of the merging.
class WordCache {
 public:
  explicit WordCache(std::size_t text_size)
      : slots_(std::bit_ceil(std::clamp<std::size_t>(text_size / 8, 16, 16384))) {}

  struct Slot {
    std::string_view word;
    std::size_t first = 0;  // in the output
    std::size_t count = 0;
  };

  Slot& Find(std::string_view word) {
    return slots_[std::hash<std::string_view>()(word) & (slots_.size() - 1)];
  }

 private:
  std::vector<Slot> slots_;
};

std::array<std::int32_t, 256> ByteIds(const Vocabulary& vocabulary) {
  if (vocabulary.rules.symbols == SymbolRule::kBytes) {
    return FindByteTokens(vocabulary.tokens, "tokenizer");
  }
  std::array<std::int32_t, 256> ids{};
  Check(vocabulary.byte_tokens.size() == ids.size(), "a vocabulary of characters without bytes");
  std::copy(vocabulary.byte_tokens.begin(), vocabulary.byte_tokens.end(), ids.begin());
  return ids;
}

}  // namespace

struct Tokenizer::Tables {
  Tables(Vocabulary v, std::vector<TokenizerFile> f)
      : vocabulary(std::move(v)),
        files(std::move(f)),
        byte_ids(ByteIds(vocabulary)),
        ranks(vocabulary.merges),
        pieces(vocabulary),
        added(MakeFinder(vocabulary, /*normalised=*/false)),
        added_later(MakeFinder(vocabulary, /*normalised=*/true)),
        pretokenizer(vocabulary.rules.words),
        may_cut(!added_later.HasInnerSpace()) {}

  // The members below refer to the vocabulary: it stays where it is.
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const Vocabulary vocabulary;
  const std::vector<TokenizerFile> files;
  const std::array<std::int32_t, 256> byte_ids;
  const MergeRanks ranks;
  const PieceTable pieces;
  const AddedTokenFinder added;
  const AddedTokenFinder added_later;  // in normalised text
  const Pretokenizer pretokenizer;
  const bool may_cut;
};

// The work of one EncodeSegments call.
class Tokenizer::Encoder {
 public:
  Encoder(const Tables& tables, std::size_t text_size, std::vector<std::int32_t>* ids)
      : tables_(tables),
        rules_(tables.vocabulary.rules),
        cache_(text_size),
        word_merger_(tables.vocabulary.merges, tables.ranks, tables.byte_ids),
        piece_merger_(tables.pieces),
        splitter_(tables.pretokenizer),
        ids_(ids) {}

  void Add(const TextSegment& segment, SpecialTokens special) {
    if (segment.token) return ids_->push_back(*segment.token);
    TextSegment normalised = segment;
    if (auto changed = Normalise(rules_, segment.text, segment.continues)) {
      normalised.text = Keep(*std::move(changed));
    }
    if (tables_.added_later.empty()) return AddStretch(normalised);
    parts_.clear();
    tables_.added_later.Split(normalised, special, &parts_);
    for (const TextSegment& part : parts_) {
      if (part.token) {
        ids_->push_back(*part.token);
      } else {
        AddStretch(part);
      }
    }
  }

 private:
  // The cache refers to words: changed texts stay until the end.
  std::string_view Keep(std::string text) { return kept_.emplace_back(std::move(text)); }

  void AddStretch(const TextSegment& stretch) {
    std::string_view text = stretch.text;
    const bool prefix = rules_.prefix == PrefixRule::kUnlessSpace ||
                        (rules_.prefix == PrefixRule::kFirst && stretch.first);
    if (prefix && !stretch.continues && !text.starts_with(' ')) {
      std::string prefixed(1, ' ');
      text = Keep(std::move(prefixed.append(text)));
    }
    splitter_.Start(text);
    std::string_view word;
    while (splitter_.Next(&word)) AddWord(word);
  }

  void AddWord(std::string_view word) {
    // Longer words hardly ever repeat, and hashing them costs.
    constexpr std::size_t kMaxCachedWord = 32;
    if (word.size() > kMaxCachedWord) return MergeWord(word);
    WordCache::Slot& slot = cache_.Find(word);
    const std::size_t first = ids_->size();
    if (slot.word == word) {
      for (std::size_t i = 0; i < slot.count; ++i) {
        const std::int32_t id = (*ids_)[slot.first + i];
        ids_->push_back(id);
      }
    } else {
      MergeWord(word);
    }
    slot = {word, first, ids_->size() - first};
  }

  void MergeWord(std::string_view word) {
    if (rules_.whole_words) {
      const std::optional<std::int32_t> id = tables_.vocabulary.tokens.Find(word);
      if (id && tables_.vocabulary.IsOrdinary(*id)) return ids_->push_back(*id);
    }
    if (rules_.merging == MergeRule::kScores) return piece_merger_.Append(word, ids_);
    if (rules_.symbols == SymbolRule::kBytes) return word_merger_.Append(word, ids_);
    characters_.clear();
    for (std::size_t i = 0; i < word.size();) {
      const std::string_view character = word.substr(i, NextUtf8Part(word, i).length);
      const std::optional<std::int32_t> id = tables_.vocabulary.tokens.Find(character);
      if (id && tables_.vocabulary.IsOrdinary(*id)) {
        characters_.push_back(*id);
      } else {
        for (const char c : character) {
          characters_.push_back(tables_.byte_ids[static_cast<unsigned char>(c)]);
        }
      }
      i += character.size();
    }
    word_merger_.Append(characters_, ids_);
  }

  const Tables& tables_;
  const TextRules& rules_;
  WordCache cache_;
  WordMerger word_merger_;
  PieceMerger piece_merger_;
  Pretokenizer::Splitter splitter_;
  std::vector<std::int32_t>* ids_;
  std::deque<std::string> kept_;
  std::vector<TextSegment> parts_;
  std::vector<std::int32_t> characters_;
};

Tokenizer::Tokenizer(Vocabulary vocabulary, std::vector<TokenizerFile> files)
    : tables_(std::make_shared<const Tables>(std::move(vocabulary), std::move(files))) {}

Tokenizer Tokenizer::Load(const fs::path& directory) {
  TokenizerFolder folder = ReadTokenizerFolder(directory);
  return Tokenizer(std::move(folder.vocabulary), std::move(folder.files));
}

Tokenizer Tokenizer::FromVocabularyAndMerges(std::string_view vocab_json,
                                             std::string_view merges_txt) {
  return Tokenizer(ReadVocabularyAndMerges({vocab_json, "vocab.json"}, {merges_txt, "merges.txt"}));
}

Tokenizer Tokenizer::FromTokenizerJson(std::string_view tokenizer_json) {
  return Tokenizer(ReadTokenizerJson({tokenizer_json, "tokenizer.json"}),
                   {{"tokenizer.json", std::string(tokenizer_json)}});
}

Tokenizer Tokenizer::FromTokenizerBin(std::string_view tokenizer_bin) {
  return Tokenizer(ReadTokenizerBin({tokenizer_bin, "tokenizer.bin"}),
                   {{"tokenizer.bin", std::string(tokenizer_bin)}});
}

std::vector<std::int32_t> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  EncodeSegments(Split(text, special), special, &ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::EncodePrompt(std::string_view text,
                                                  SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  if (begin_of_text()) ids.push_back(*begin_of_text());
  EncodeSegments(Split(text, special), special, &ids);
  return ids;
}

std::vector<std::int32_t> Tokenizer::EncodeContinuation(std::string_view text,
                                                        SpecialTokens special) const {
  std::vector<TextSegment> segments = Split(text, special);
  if (!segments.empty()) {
    segments[0].first = false;
    segments[0].continues = true;
  }
  std::vector<std::int32_t> ids;
  EncodeSegments(segments, special, &ids);
  return ids;
}

std::vector<TextSegment> Tokenizer::Split(std::string_view text, SpecialTokens special) const {
  std::vector<TextSegment> segments;
  tables_->added.Split({.text = text, .token = std::nullopt, .first = true}, special, &segments);
  return segments;
}

bool Tokenizer::MayCut(std::string_view text, std::size_t position) const {
  return tables_->may_cut && IsSafeCut(tables_->vocabulary.rules.words, text, position);
}

void Tokenizer::EncodeSegments(std::span<const TextSegment> segments, SpecialTokens special,
                               std::vector<std::int32_t>* ids) const {
  std::size_t size = 0;
  for (const TextSegment& segment : segments) size += segment.text.size();
  Encoder encoder(*tables_, size, ids);
  for (const TextSegment& segment : segments) encoder.Add(segment, special);
}

std::string_view Tokenizer::TokenBytes(std::int32_t id) const {
  if (id < 0 || id >= vocabulary_size()) {
    Fail("token id {} is outside the tokenizer's vocabulary of {} tokens (0..{})", id,
         vocabulary_size(), vocabulary_size() - 1);
  }
  const std::vector<std::int32_t>& silent = tables_->vocabulary.silent;
  if (std::binary_search(silent.begin(), silent.end(), id)) return {};
  return tables_->vocabulary.tokens.Bytes(id);
}

std::string Tokenizer::DecodeBytes(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string_view token = TokenBytes(ids[i]);
    switch (tables_->vocabulary.rules.leading) {
      case LeadingSpace::kKept:
        break;
      case LeadingSpace::kDroppedAfterBegin:
        if (i > 0 && ids[i - 1] == begin_of_text() && token.starts_with(' ')) {
          token.remove_prefix(1);
        }
        break;
      case LeadingSpace::kDropped:
        if (i == 0 && token.starts_with(' ')) token.remove_prefix(1);
        break;
      case LeadingSpace::kFirstTokenHasNone:
        if (i > 0) break;
        for (const char c : token) {
          if (c != ' ') bytes += c;
        }
        token = {};
        break;
    }
    bytes += token;
  }
  return bytes;
}

std::string Tokenizer::DecodePrompt(std::span<const std::int32_t> ids) const {
  const bool begins = !ids.empty() && ids[0] == begin_of_text();
  // Where begin-of-text gives no text, what follows it may depend on it.
  if (begins && !TokenBytes(ids[0]).empty()) ids = ids.subspan(1);
  return DecodeBytes(ids);
}

std::string Tokenizer::TokenText(std::int32_t id) const {
  if (!TokenBytes(id).empty()) return ToValidUtf8(TokenBytes(id));
  return ToValidUtf8(tables_->vocabulary.tokens.Bytes(id));
}

std::int32_t Tokenizer::vocabulary_size() const { return tables_->vocabulary.tokens.size(); }

std::optional<std::int32_t> Tokenizer::begin_of_text() const {
  return tables_->vocabulary.begin_of_text;
}

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  return tables_->vocabulary.EndOfText();
}

std::optional<std::int32_t> Tokenizer::FindToken(std::string_view bytes) const {
  return tables_->vocabulary.tokens.Find(bytes);
}

const Vocabulary& Tokenizer::vocabulary() const { return tables_->vocabulary; }

void Tokenizer::Save(const fs::path& directory) const {
  SaveTokenizerFiles(tables_->vocabulary, tables_->files, directory);
}

}  // namespace clearhead
