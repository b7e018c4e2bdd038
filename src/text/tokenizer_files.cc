// SPDX-License-Identifier: MIT
#include "text/tokenizer_files.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "text/bpe.h"
#include "text/byte_map.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

using Document = nlohmann::json;  // sorted keys: large objects parse in n log n

// For messages: one line, printable, not endless.
std::string Shorten(std::string_view text) {
  constexpr std::size_t kShown = 60;
  std::string shown = ToValidUtf8(text.substr(0, kShown));
  if (text.size() > kShown) shown += "...";
  return shown;
}

std::string Quote(std::string_view text) { return ToText(Json(Shorten(text)), /*indent=*/-1); }

std::string Shown(const Document& value) { return Shorten(value.dump()); }

struct Entry {
  std::string token;  // as written in the file
  std::int64_t id;
};

[[noreturn]] void FailParse(NamedText file, std::size_t byte) {
  const std::string_view before = file.text.substr(0, std::min(byte, file.text.size()));
  Fail("{}: not valid JSON at line {}", file.name,
       1 + std::count(before.begin(), before.end(), '\n'));
}

// Collects one flat object {"token": id, ...} as it is parsed. core/json.h would build a document
// whose keys are looked up one after the other: seconds for 50 thousand of them.
class EntryCollector : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit EntryCollector(NamedText file) : file_(file) {}

  std::vector<Entry> Take() { return std::move(entries_); }

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
  std::vector<Entry> entries_;
};

// Puts the tokens in the order of their ids, which must be 0..n-1, each once. Tokens in `added`
// stand for their characters, others for bytes in GPT-2's alphabet. A token of other characters
// cannot come from merging bytes; it stands for its characters too, so that models with such
// entries load.
void FillTokens(std::vector<Entry> entries, std::string_view name, Vocabulary* vocabulary) {
  const std::size_t count = entries.size();
  if (count > static_cast<std::size_t>(kMaxVocabulary)) {
    Fail("{}: {} tokens; at most {} are supported", name, count, kMaxVocabulary);
  }
  std::vector<const Entry*> by_id(count, nullptr);
  for (const Entry& entry : entries) {
    if (entry.id < 0 || entry.id >= static_cast<std::int64_t>(count)) {
      Fail("{}: token {} has an id outside 0..{}, the range for {} tokens", name,
           Quote(entry.token), static_cast<std::int64_t>(count) - 1, count);
    }
    const Entry*& place = by_id[entry.id];
    if (place != nullptr) {
      Fail("{}: id {} belongs to two tokens, {} and {}", name, entry.id, Quote(place->token),
           Quote(entry.token));
    }
    place = &entry;
  }
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

void AddEndOfText(Vocabulary* vocabulary) {
  const std::optional<std::int32_t> id = vocabulary->tokens.Find(kEndOfText);
  if (id && !vocabulary->EndOfText()) {
    vocabulary->added.push_back({std::string(kEndOfText), *id, true});
  }
}

// Turns pairs of written tokens into merges, refusing what the vocabulary does not have. `where`
// names the merge in messages.
class MergeReader {
 public:
  MergeReader(Vocabulary* vocabulary, std::size_t most_merges)
      : vocabulary_(vocabulary), ranks_(most_merges) {
    vocabulary_->merges.reserve(most_merges);
  }

  template <typename Where>
  void Add(std::string_view left, std::string_view right, const Where& where) {
    const std::int32_t left_id = Find(left, where);
    const std::int32_t right_id = Find(right, where);
    const std::string joined = std::string(left).append(right);
    const auto rank = static_cast<std::uint32_t>(vocabulary_->merges.size());
    if (!ranks_.Insert(left_id, right_id, rank)) {
      Fail("{}: the merge of {} and {} appears twice", where(), Quote(left), Quote(right));
    }
    vocabulary_->merges.push_back({left_id, right_id, Find(joined, where)});
  }

 private:
  template <typename Where>
  std::int32_t Find(std::string_view token, const Where& where) const {
    const std::optional<std::string> bytes = SymbolsToBytes(token);
    const std::optional<std::int32_t> id =
        bytes && !bytes->empty() ? vocabulary_->tokens.Find(*bytes) : std::nullopt;
    if (!id) Fail("{}: {} is not in the vocabulary", where(), Quote(token));
    return *id;
  }

  Vocabulary* vocabulary_;
  MergeRanks ranks_;  // to notice repeats
};

void ReadMerges(NamedText file, Vocabulary* vocabulary) {
  MergeReader reader(vocabulary, std::count(file.text.begin(), file.text.end(), '\n') + 1);
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

Document ParseDocument(NamedText file) {
  constexpr int kMaxDepth = 64;
  std::vector<std::unordered_set<std::string>> keys;  // of the open objects
  const auto inspect = [&](int depth, Document::parse_event_t event, Document& parsed) {
    using Event = Document::parse_event_t;
    if (depth > kMaxDepth) Fail("{}: JSON nested deeper than {} levels", file.name, kMaxDepth);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        Fail("{}: the key {} appears twice in one object", file.name, Quote(key));
      }
    }
    return true;
  };
  try {
    return Document::parse(file.text, inspect);
  } catch (const Document::parse_error& error) {
    FailParse(file, error.byte);
  } catch (const Document::exception&) {
    Fail("{}: not valid JSON (a number is out of range)", file.name);
  }
}

// The member, or null if it is not there.
const Document& Member(const Document& object, const char* key) {
  static const Document null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// Refuses a component of another type than `expected`. `optional`: null will do.
void ExpectType(std::string_view name, const Document& root, const char* component,
                std::string_view expected, bool optional) {
  const Document& value = Member(root, component);
  if (value.is_null() && optional) return;
  const Document& type = value.is_object() ? Member(value, "type") : value;
  if (value.is_object() && type == Document(expected)) return;
  Fail("{}: the {} is {}; only {} is supported, as GPT-2 has it", name, component, Shown(type),
       expected);
}

// Refuses a setting that changes the tokens, unless it has one of the values that do not.
void ExpectSetting(std::string_view name, const Document& object, const char* key,
                   std::initializer_list<Document> harmless) {
  const Document& value = Member(object, key);
  if (value.is_null() || std::find(harmless.begin(), harmless.end(), value) != harmless.end())
    return;
  Fail("{}: the setting {} = {} is not supported; GPT-2 does not have it", name, key, Shown(value));
}

void ExpectGpt2Rules(std::string_view name, const Document& root) {
  if (!Member(root, "normalizer").is_null()) {
    const Document& normalizer = Member(root, "normalizer");
    const Document& type = normalizer.is_object() ? Member(normalizer, "type") : normalizer;
    Fail("{}: the normalizer {} is not supported; GPT-2 has none", name, Shown(type));
  }
  ExpectType(name, root, "pre_tokenizer", "ByteLevel", false);
  ExpectSetting(name, root["pre_tokenizer"], "add_prefix_space", {false});
  ExpectSetting(name, root["pre_tokenizer"], "use_regex", {true});
  ExpectType(name, root, "decoder", "ByteLevel", true);
  const Document& model = Member(root, "model");
  if (!model.is_object()) Fail("{}: there is no model", name);
  // GPT-2's first tokenizer.json was written before models had a type.
  if (!Member(model, "type").is_null()) ExpectType(name, root, "model", "BPE", false);
  ExpectSetting(name, model, "dropout", {0.0});
  ExpectSetting(name, model, "continuing_subword_prefix", {""});
  ExpectSetting(name, model, "end_of_word_suffix", {""});
  ExpectSetting(name, model, "byte_fallback", {false});
  ExpectSetting(name, model, "ignore_merges", {false});
}

// The id in a JSON value; kMaxVocabulary, which no check lets pass, if it is none.
std::int64_t IdOf(const Document& value) {
  if (!value.is_number_unsigned()) return kMaxVocabulary;
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(value.get<std::uint64_t>(), kMaxVocabulary));
}

// Reads added_tokens; those that the model's vocabulary lacks join `entries` (FillTokens then
// checks all ids).
std::vector<AddedToken> ReadAdded(std::string_view name, const Document& root,
                                  const Document& vocab, std::vector<Entry>* entries) {
  std::vector<AddedToken> added;
  const Document& list = Member(root, "added_tokens");
  if (list.is_null()) return added;
  if (!list.is_array()) Fail("{}: added_tokens is not a list", name);
  std::unordered_set<std::string_view> seen;
  for (const Document& token : list) {
    if (!token.is_object() || !Member(token, "content").is_string() ||
        Member(token, "content").get_ref<const std::string&>().empty()) {
      Fail("{}: an added token has no content", name);
    }
    const auto& content = token["content"].get_ref<const std::string&>();
    const std::int64_t id = IdOf(Member(token, "id"));
    if (!seen.insert(content).second) Fail("{}: token {} appears twice", name, Quote(content));
    const std::string where = fmt::format("{}: added token {}", name, Quote(content));
    // Each of these lets the token swallow spaces or depend on its surroundings.
    ExpectSetting(where, token, "lstrip", {false});
    ExpectSetting(where, token, "rstrip", {false});
    ExpectSetting(where, token, "single_word", {false});
    const auto in_vocab = vocab.find(content);
    if (in_vocab == vocab.end()) {
      entries->push_back({content, id});
    } else if (IdOf(*in_vocab) != id) {
      Fail("{}: the vocabulary says id {}, added_tokens says {}", where, IdOf(*in_vocab), id);
    }
    const bool special = Member(token, "special") == Document(true);
    added.push_back({content, static_cast<std::int32_t>(id), special});
  }
  return added;
}

}  // namespace

Vocabulary ReadVocabularyAndMerges(NamedText vocab_json, NamedText merges_txt) {
  EntryCollector collector(vocab_json);
  nlohmann::json::sax_parse(vocab_json.text, &collector);
  Vocabulary vocabulary;
  FillTokens(collector.Take(), vocab_json.name, &vocabulary);
  FindByteTokens(vocabulary.tokens, vocab_json.name);
  AddEndOfText(&vocabulary);
  ReadMerges(merges_txt, &vocabulary);
  return vocabulary;
}

Vocabulary ReadTokenizerJson(NamedText file) {
  const Document root = ParseDocument(file);
  if (!root.is_object()) Fail("{}: expected a JSON object", file.name);
  ExpectGpt2Rules(file.name, root);
  const Document& vocab = Member(root["model"], "vocab");
  if (!vocab.is_object()) Fail("{}: model.vocab is not an object", file.name);
  std::vector<Entry> entries;
  entries.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) entries.push_back({token, IdOf(id)});

  Vocabulary vocabulary;
  vocabulary.added = ReadAdded(file.name, root, vocab, &entries);
  FillTokens(std::move(entries), file.name, &vocabulary);
  FindByteTokens(vocabulary.tokens, file.name);
  AddEndOfText(&vocabulary);

  const Document& merges = Member(root["model"], "merges");
  if (!merges.is_array()) Fail("{}: model.merges is not a list", file.name);
  MergeReader reader(&vocabulary, merges.size());
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto where = [&] { return fmt::format("{}, merge {}", file.name, i); };
    const Document& merge = merges[i];
    if (merge.is_string()) {
      const std::string_view line = merge.get_ref<const std::string&>();
      const std::size_t space = line.find(' ');
      if (space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos) {
        reader.Add(line.substr(0, space), line.substr(space + 1), where);
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      reader.Add(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(),
                 where);
      continue;
    }
    Fail("{}: expected two tokens, as \"a b\" or [\"a\", \"b\"]", where());
  }
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
