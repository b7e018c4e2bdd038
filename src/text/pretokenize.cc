// SPDX-License-Identifier: MIT
#include "text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>

#include "core/error.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

// What is compiled for a rule; empty for the rules of spaces alone, which need no pattern. Repeats
// are possessive (++) where giving characters back cannot help: nothing to remember, so a word of
// any length takes constant memory.
std::string PatternOf(WordRule rule) {
  const std::string space = R"(\t-\r \x{85}\p{Z})";  // White_Space, inside [...]
  const std::string contraction = "'(?:[stmd]|re|ve|ll)";
  const std::string signs = "| ?[^" + space + R"(\p{L}\p{N}]++)";
  const std::string spaces = "|[" + space + "]+(?![^" + space + "])|[" + space + "]++";
  const auto modern = [&](const std::string& numbers) {
    return "(?i:" + contraction + R"()|[^\r\n\p{L}\p{N}]?\p{L}++|)" + numbers + signs +
           R"([\r\n]*+|[)" + space + R"(]*[\r\n]++)" + spaces;
  };
  switch (rule) {
    case WordRule::kGpt2:
      return contraction + R"(| ?\p{L}++| ?\p{N}++)" + signs + spaces;
    case WordRule::kLlama3:
      return modern(R"(\p{N}{1,3}+)");
    case WordRule::kQwen2:
      return modern(R"(\p{N})");
    default:
      return {};
  }
}

bool IsAsciiSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// True if the text ends with White_Space. Ill-formed text may get a false "yes".
bool EndsWithSpace(std::string_view text) {
  if (text.empty()) return false;
  if (IsAsciiSpace(text.back())) return true;
  if (text.ends_with("\u0085") || text.ends_with("\u00A0")) return true;
  if (text.size() < 3) return false;
  const std::string_view last = text.substr(text.size() - 3);
  if (last.starts_with("\xE2\x80")) {  // U+2000..U+203F
    const auto c = static_cast<unsigned char>(last[2]);
    return c <= 0x8A || c == 0xA8 || c == 0xA9 || c == 0xAF;
  }
  return last == "\u1680" || last == "\u205F" || last == "\u3000";
}

// Where the word that starts at `start` ends, by a rule of spaces alone.
std::size_t SpaceRuleEnd(WordRule rule, std::string_view text, std::size_t start) {
  if (rule == WordRule::kWhole) return text.size();
  std::size_t inside = start + 1;
  if (rule == WordRule::kSpaceRuns) inside = text.find_first_not_of(' ', start);
  const std::size_t end = inside < text.size() ? text.find(' ', inside) : inside;
  return std::min(end, text.size());
}

}  // namespace

std::string_view WrittenPattern(WordRule rule) {
  switch (rule) {
    case WordRule::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case WordRule::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case WordRule::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
             R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    default:
      return {};
  }
}

struct Pretokenizer::Rule {
  WordRule words = WordRule::kGpt2;
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  bool jit = false;

  ~Rule() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Pretokenizer::Pretokenizer(WordRule words) : rule_(std::make_unique<Rule>()) {
  rule_->words = words;
  const std::string pattern = PatternOf(words);
  if (pattern.empty()) return;
  int error = 0;
  PCRE2_SIZE offset = 0;
  rule_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, nullptr);
  Check(rule_->code != nullptr, "a splitting rule does not compile");
  rule_->limits = pcre2_match_context_create(nullptr);
  if (rule_->limits == nullptr) throw std::bad_alloc();
  // The rule takes linear time and constant depth; PCRE2's guards against other rules would only
  // turn a long word into an error.
  pcre2_set_match_limit(rule_->limits, std::numeric_limits<std::uint32_t>::max());
  pcre2_set_heap_limit(rule_->limits, std::numeric_limits<std::uint32_t>::max());
  // Systems that forbid writable code (SELinux, some containers) have no JIT: slower, the same
  // words.
  rule_->jit = pcre2_jit_compile(rule_->code, PCRE2_JIT_COMPLETE) == 0;
}

Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

struct Pretokenizer::Splitter::Scratch {
  pcre2_match_data* match = nullptr;

  ~Scratch() { pcre2_match_data_free(match); }
};

Pretokenizer::Splitter::Splitter(const Pretokenizer& pretokenizer)
    : rule_(*pretokenizer.rule_), scratch_(std::make_unique<Scratch>()) {
  scratch_->match = pcre2_match_data_create(1, nullptr);
  if (scratch_->match == nullptr) throw std::bad_alloc();
}

Pretokenizer::Splitter::~Splitter() = default;

void Pretokenizer::Splitter::Start(std::string_view text) {
  text_ = text;
  subject_ = text;
  in_text_ = 0;
  in_subject_ = 0;
  repairs_.clear();
  next_repair_ = 0;
  if (rule_.code == nullptr) return;
  const std::size_t bad = FindIllFormed(text);
  if (bad < text.size()) RepairText(bad);
}

void Pretokenizer::Splitter::RepairText(std::size_t first_bad) {
  repaired_.clear();
  std::size_t done = 0;
  for (std::size_t bad = first_bad;; bad = FindIllFormed(text_, done)) {
    repaired_.append(text_, done, bad - done);
    if (bad == text_.size()) break;
    const std::size_t length = NextUtf8Part(text_, bad).length;
    repairs_.push_back({repaired_.size(), length});
    repaired_ += "\uFFFD";
    done = bad + length;
  }
  subject_ = repaired_;
}

std::size_t Pretokenizer::Splitter::MatchEnd() const {
  if (rule_.code == nullptr) return SpaceRuleEnd(rule_.words, subject_, in_subject_);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(subject_.data());
  // Checked once in Start; PCRE2 would check the whole rest again for every word.
  constexpr std::uint32_t kChecked = PCRE2_NO_UTF_CHECK;
  int result = PCRE2_ERROR_JIT_BADOPTION;
  if (rule_.jit) {
    result = pcre2_jit_match(rule_.code, subject, subject_.size(), in_subject_, kChecked,
                             scratch_->match, rule_.limits);
  }
  if (result < 0) {
    result = pcre2_match(rule_.code, subject, subject_.size(), in_subject_, kChecked | PCRE2_NO_JIT,
                         scratch_->match, rule_.limits);
  }
  if (result == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  const std::size_t end = result < 0 ? 0 : pcre2_get_ovector_pointer(scratch_->match)[1];
  Check(end > in_subject_, "the splitting rule did not match");
  return end;
}

bool Pretokenizer::Splitter::Next(std::string_view* word) {
  if (in_subject_ == subject_.size()) return false;
  const std::size_t end = MatchEnd();
  std::size_t length = end - in_subject_;
  for (; next_repair_ < repairs_.size() && repairs_[next_repair_].position < end; ++next_repair_) {
    length += repairs_[next_repair_].length;
    length -= 3;
  }
  *word = text_.substr(in_text_, length);
  in_text_ += length;
  in_subject_ = end;
  return true;
}

bool IsSafeCut(WordRule rule, std::string_view text, std::size_t position) {
  if (position == 0 || position >= text.size()) return false;
  const char c = text[position];
  const std::string_view before = text.substr(0, position);
  switch (rule) {
    case WordRule::kGpt2:
      return IsAsciiSpace(c) && !EndsWithSpace(before);
    case WordRule::kLlama3:
    case WordRule::kQwen2:
      return IsAsciiSpace(c) && c != '\r' && c != '\n' && !EndsWithSpace(before);
    case WordRule::kSpaceRuns:
    case WordRule::kEverySpace:
      return c == ' ' && before.back() != ' ' && !before.ends_with(kSpaceMark);
    case WordRule::kWhole:
      return false;
  }
  return false;
}

}  // namespace clearhead
