// SPDX-License-Identifier: MIT
// The splitting rules: text falls into words, and merges never cross from one into the next.
//
//   GPT-2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   Llama 3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//            | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   Qwen2    the same with \p{N} for \p{N}{1,3}
//
// where \s is Unicode's White_Space (which PCRE2's own \s is not: it adds U+180E) and the case of
// letters is Unicode's: "'\u017F" (long s) is a contraction. SentencePiece's vocabularies have
// rules of spaces alone (text_rules.h).
//
// Bytes that are not UTF-8 never fail: every maximal ill-formed part (utf8.h) counts as one
// character U+FFFD, which is neither space nor letter nor number. So for GPT-2 "\xFF\xFE!" is one
// word, " \xFF" too, and "a\xFF" is two.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_rules.h"

namespace clearhead {

// The pattern of a rule in `text_rules.h` as tokenizer.json files write it; empty for those of
// spaces alone.
std::string_view WrittenPattern(WordRule rule);

// The compiled rule. Threads: const, share it freely; each thread splits with its own Splitter.
class Pretokenizer {
 public:
  explicit Pretokenizer(WordRule rule = WordRule::kGpt2);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  class Splitter;

 private:
  struct Rule;
  std::unique_ptr<Rule> rule_;
};

// Walks over the words of a text. Lifetime: the Pretokenizer and the text must outlive it.
class Pretokenizer::Splitter {
 public:
  explicit Splitter(const Pretokenizer& pretokenizer);
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;
  ~Splitter();

  void Start(std::string_view text);

  // The next word, never empty; words in order are exactly the text. False at the end.
  bool Next(std::string_view* word);

 private:
  // An ill-formed part of the text, which `repaired_` has as the three bytes of U+FFFD.
  struct Repair {
    std::size_t position;  // in repaired_
    std::size_t length;    // in text_
  };
  struct Scratch;

  std::size_t MatchEnd() const;
  void RepairText(std::size_t first_bad);

  const Rule& rule_;
  std::unique_ptr<Scratch> scratch_;
  std::string_view text_;
  std::string_view subject_;  // what is matched: text_, or repaired_ if that is ill-formed
  std::size_t in_text_ = 0;
  std::size_t in_subject_ = 0;
  std::string repaired_;
  std::vector<Repair> repairs_;
  std::size_t next_repair_ = 0;
};

// True if the words of `text` are the words of its first `position` bytes followed by the words of
// the rest, whatever else the text holds: an ASCII space follows something that is not a space.
// (All kinds of words but spaces end before a space, and no rule looks back. In Llama 3's and
// Qwen's rules signs take the line ends after them along, so there a line end does not count.)
// Never true at the ends.
bool IsSafeCut(WordRule rule, std::string_view text, std::size_t position);

}  // namespace clearhead
