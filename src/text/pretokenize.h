// SPDX-License-Identifier: MIT
// GPT-2's splitting rule: text falls into words, and merges never cross from one into the next.
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// where \s is Unicode's White_Space (which PCRE2's own \s is not: it adds U+180E).
//
// Bytes that are not UTF-8 never fail: every maximal ill-formed part (utf8.h) counts as one
// character U+FFFD, which is neither space nor letter nor number. So "\xFF\xFE!" is one word, "
// \xFF" too, and "a\xFF" is two.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace clearhead {

// The compiled rule. Threads: const, share it freely; each thread splits with its own Splitter.
class Pretokenizer {
 public:
  Pretokenizer();
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
// (All kinds of words but spaces end before a space, and no rule looks back.) Never true at the
// ends.
bool IsSafeCut(std::string_view text, std::size_t position);

}  // namespace clearhead
