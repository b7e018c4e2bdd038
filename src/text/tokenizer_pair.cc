// SPDX-License-Identifier: MIT
// vocab.json and merges.txt.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/byte_map.h"
#include "text/tokenizer_files.h"
#include "text/vocabulary_reader.h"

namespace clearhead {
namespace {

// Collects one flat object {"token": id, ...} as it is parsed. core/json.h would build a document
// whose keys are looked up one after the other: seconds for 50 thousand of them.
class EntryCollector : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit EntryCollector(NamedText file) : file_(file) {}

  std::vector<WrittenToken> Take() { return std::move(entries_); }

  bool start_object(std::size_t) override {
    if (open_) FailValue();
    return open_ = true;
  }
  bool key(string_t& token) override {
    entries_.push_back({std::move(token), -1});
    return true;
  }
  bool number_unsigned(number_unsigned_t id) override {
    if (!open_) FailValue();
    entries_.back().id = static_cast<std::int64_t>(std::min<std::uint64_t>(id, kMaxVocabulary));
    return true;
  }
  bool number_integer(number_integer_t) override { FailValue(); }
  bool number_float(number_float_t, const string_t&) override { FailValue(); }
  bool string(string_t&) override { FailValue(); }
  bool binary(binary_t&) override { FailValue(); }
  bool null() override { FailValue(); }
  bool boolean(bool) override { FailValue(); }
  bool start_array(std::size_t) override { FailValue(); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception&) override {
    FailParse(file_, byte);
  }

 private:
  [[noreturn]] void FailValue() const {
    if (entries_.empty()) Fail("{}: expected one object of tokens and their ids", file_.name);
    Fail("{}: token {} has no whole number as its id", file_.name, Quote(entries_.back().token));
  }

  NamedText file_;
  bool open_ = false;
  std::vector<WrittenToken> entries_;
};

void ReadMerges(NamedText file, Vocabulary* vocabulary) {
  const std::size_t most = std::count(file.text.begin(), file.text.end(), '\n') + 1;
  MergeReader reader(ByteLevelFinder(vocabulary->tokens), most, &vocabulary->merges);
  std::size_t line_number = 0;
  for (std::string_view rest = file.text; !rest.empty();) {
    ++line_number;
    const std::size_t newline = rest.find('\n');
    std::string_view line = rest.substr(0, newline);
    rest.remove_prefix(newline == std::string_view::npos ? rest.size() : newline + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1 && line.starts_with("#version")) continue;
    const auto where = [&] { return fmt::format("{}, line {}", file.name, line_number); };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      Fail("{}: found {}, expected two tokens with one space between", where(), Quote(line));
    }
    reader.Add(line.substr(0, space), line.substr(space + 1), where);
  }
}

}  // namespace

Vocabulary ReadVocabularyAndMerges(NamedText vocab_json, NamedText merges_txt) {
  EntryCollector collector(vocab_json);
  nlohmann::json::sax_parse(vocab_json.text, &collector);
  Vocabulary vocabulary;
  FillByteLevel(collector.Take(), vocab_json.name, &vocabulary);
  FindByteTokens(vocabulary.tokens, vocab_json.name);
  AddEndOfText(&vocabulary);
  ReadMerges(merges_txt, &vocabulary);
  return vocabulary;
}

namespace {

std::string Written(const Vocabulary& vocabulary, std::int32_t id) {
  const std::string_view bytes = vocabulary.tokens.Bytes(id);
  const bool literal = std::binary_search(vocabulary.literal.begin(), vocabulary.literal.end(), id);
  return literal ? std::string(bytes) : BytesToSymbols(bytes);
}

}  // namespace

std::string WriteVocabJson(const Vocabulary& vocabulary) {
  std::string text = "{";
  for (std::int32_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (id > 0) text += ", ";
    text += ToText(Json(Written(vocabulary, id)), /*indent=*/-1);
    text += fmt::format(": {}", id);
  }
  return text + "}\n";
}

std::string WriteMergesTxt(const Vocabulary& vocabulary) {
  std::string text = "#version: 0.2\n";
  for (const Merge& merge : vocabulary.merges) {
    text += Written(vocabulary, merge.left) + " " + Written(vocabulary, merge.right) + "\n";
  }
  return text;
}

}  // namespace clearhead
