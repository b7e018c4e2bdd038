// SPDX-License-Identifier: MIT
#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer_files.h"
#include "text/utf8.h"

namespace clearhead {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxFileBytes = 1ull << 28;

// Added tokens by their first byte, the longest first.
class AddedTokenFinder {
 public:
  explicit AddedTokenFinder(std::span<const AddedToken> tokens) {
    for (const AddedToken& token : tokens) BucketOf(token.content).push_back(&token);
    for (Bucket& bucket : buckets_) {
      std::sort(bucket.begin(), bucket.end(), [](const AddedToken* a, const AddedToken* b) {
        return a->content.size() > b->content.size();
      });
    }
  }

  // The token that starts right here, or null.
  const AddedToken* Match(std::string_view text, SpecialTokens special) const {
    for (const AddedToken* token : buckets_[static_cast<unsigned char>(text[0])]) {
      if (token->special && special == SpecialTokens::kAsText) continue;
      if (text.starts_with(token->content)) return token;
    }
    return nullptr;
  }

 private:
  using Bucket = std::vector<const AddedToken*>;
  Bucket& BucketOf(std::string_view content) {
    return buckets_[static_cast<unsigned char>(content[0])];
  }

  std::array<Bucket, 256> buckets_;
};

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

}  // namespace

struct Tokenizer::Tables {
  explicit Tables(Vocabulary v)
      : vocabulary(std::move(v)),
        byte_ids(FindByteTokens(vocabulary.tokens, "tokenizer")),
        ranks(vocabulary.merges),
        added(vocabulary.added) {}

  // The members below refer to the vocabulary: it stays where it is.
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;

  const Vocabulary vocabulary;
  const std::array<std::int32_t, 256> byte_ids;
  const MergeRanks ranks;
  const AddedTokenFinder added;
  const Pretokenizer pretokenizer;
};

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : tables_(std::make_shared<const Tables>(std::move(vocabulary))) {}

Tokenizer Tokenizer::Load(const fs::path& directory) {
  const fs::path vocab = directory / "vocab.json";
  const fs::path merges = directory / "merges.txt";
  const fs::path both = directory / "tokenizer.json";
  std::error_code ignored;
  if (fs::exists(vocab, ignored) && fs::exists(merges, ignored)) {
    const std::string vocab_text = ReadFile(vocab, kMaxFileBytes);
    const std::string merges_text = ReadFile(merges, kMaxFileBytes);
    return Tokenizer(
        ReadVocabularyAndMerges({vocab_text, vocab.string()}, {merges_text, merges.string()}));
  }
  if (fs::exists(both, ignored)) {
    const std::string text = ReadFile(both, kMaxFileBytes);
    return Tokenizer(ReadTokenizerJson({text, both.string()}));
  }
  Fail("no tokenizer in '{}': expected vocab.json and merges.txt, or tokenizer.json",
       directory.string());
}

Tokenizer Tokenizer::FromVocabularyAndMerges(std::string_view vocab_json,
                                             std::string_view merges_txt) {
  return Tokenizer(ReadVocabularyAndMerges({vocab_json, "vocab.json"}, {merges_txt, "merges.txt"}));
}

Tokenizer Tokenizer::FromTokenizerJson(std::string_view tokenizer_json) {
  return Tokenizer(ReadTokenizerJson({tokenizer_json, "tokenizer.json"}));
}

std::vector<std::int32_t> Tokenizer::Encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  EncodeSegments(Split(text, special), &ids);
  return ids;
}

std::vector<TextSegment> Tokenizer::Split(std::string_view text, SpecialTokens special) const {
  std::vector<TextSegment> segments;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size();) {
    const AddedToken* token = tables_->added.Match(text.substr(i), special);
    if (token == nullptr) {
      ++i;
      continue;
    }
    if (i > start) segments.push_back({text.substr(start, i - start), std::nullopt});
    segments.push_back({text.substr(i, token->content.size()), token->id});
    i += token->content.size();
    start = i;
  }
  if (start < text.size()) segments.push_back({text.substr(start), std::nullopt});
  return segments;
}

void Tokenizer::EncodeSegments(std::span<const TextSegment> segments,
                               std::vector<std::int32_t>* ids) const {
  // Longer words hardly ever repeat, and hashing them costs.
  constexpr std::size_t kMaxCachedWord = 32;

  std::size_t size = 0;
  for (const TextSegment& segment : segments) size += segment.text.size();
  WordCache cache(size);
  WordMerger merger(tables_->vocabulary.merges, tables_->ranks, tables_->byte_ids);
  Pretokenizer::Splitter splitter(tables_->pretokenizer);
  for (const TextSegment& segment : segments) {
    if (segment.token) {
      ids->push_back(*segment.token);
      continue;
    }
    splitter.Start(segment.text);
    std::string_view word;
    while (splitter.Next(&word)) {
      if (word.size() > kMaxCachedWord) {
        merger.Append(word, ids);
        continue;
      }
      WordCache::Slot& slot = cache.Find(word);
      const std::size_t first = ids->size();
      if (slot.word == word) {
        for (std::size_t i = 0; i < slot.count; ++i) {
          const std::int32_t id = (*ids)[slot.first + i];
          ids->push_back(id);
        }
      } else {
        merger.Append(word, ids);
      }
      slot = {word, first, ids->size() - first};
    }
  }
}

std::string_view Tokenizer::TokenBytes(std::int32_t id) const {
  if (id < 0 || id >= vocabulary_size()) {
    Fail("token id {} is outside the tokenizer's vocabulary of {} tokens (0..{})", id,
         vocabulary_size(), vocabulary_size() - 1);
  }
  return tables_->vocabulary.tokens.Bytes(id);
}

std::string Tokenizer::DecodeBytes(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += TokenBytes(id);
  return bytes;
}

std::string Tokenizer::TokenText(std::int32_t id) const { return ToValidUtf8(TokenBytes(id)); }

std::int32_t Tokenizer::vocabulary_size() const { return tables_->vocabulary.tokens.size(); }

std::optional<std::int32_t> Tokenizer::end_of_text() const {
  return tables_->vocabulary.EndOfText();
}

std::optional<std::int32_t> Tokenizer::FindToken(std::string_view bytes) const {
  return tables_->vocabulary.tokens.Find(bytes);
}

const Vocabulary& Tokenizer::vocabulary() const { return tables_->vocabulary; }

void Tokenizer::Save(const fs::path& directory) const {
  for (const AddedToken& token : tables_->vocabulary.added) {
    if (token.content != kEndOfText) {
      Fail("cannot save the tokenizer to '{}': vocab.json has no place for the added token '{}'",
           directory.string(), ToValidUtf8(token.content));
    }
  }
  MakeDirectory(directory);
  WriteFile(directory / "vocab.json", WriteVocabJson(tables_->vocabulary));
  WriteFile(directory / "merges.txt", WriteMergesTxt(tables_->vocabulary));
}

}  // namespace clearhead
