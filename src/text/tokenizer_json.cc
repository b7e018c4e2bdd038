// SPDX-License-Identifier: MIT
// tokenizer.json: the tokens and merges; tokenizer_json_rules.cc reads the rest.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/tokenizer_files.h"
#include "text/tokenizer_json_rules.h"
#include "text/vocabulary_reader.h"

namespace clearhead {
namespace {

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

// The id in a JSON value; kMaxVocabulary, which no check lets pass, if it is none.
std::int64_t IdOf(const Document& value) {
  if (!value.is_number_unsigned()) return kMaxVocabulary;
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(value.get<std::uint64_t>(), kMaxVocabulary));
}

// Reads added_tokens; those that the model's vocabulary lacks join `entries` (InOrder then
// checks all ids).
std::vector<AddedToken> ReadAdded(std::string_view name, const Document& root,
                                  const Document& vocab, std::vector<WrittenToken>* entries) {
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
    const Document& normalized = Member(token, "normalized");
    added.push_back({content, static_cast<std::int32_t>(id), special,
                     normalized.is_null() ? !special : normalized == Document(true)});
  }
  return added;
}

template <typename Find>
void ReadMergeList(std::string_view name, const Document& merges, Find find,
                   std::vector<Merge>* result) {
  MergeReader reader(std::move(find), merges.size(), result);
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const auto where = [&] { return fmt::format("{}, merge {}", name, i); };
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
}

}  // namespace

Vocabulary ReadTokenizerJson(NamedText file) {
  const Document root = ParseDocument(file);
  if (!root.is_object()) Fail("{}: expected a JSON object", file.name);
  Vocabulary vocabulary;
  vocabulary.rules = ReadRules(file.name, root);
  const Document& vocab = Member(root["model"], "vocab");
  if (!vocab.is_object()) Fail("{}: model.vocab is not an object", file.name);
  const Document& merges = Member(root["model"], "merges");
  if (!merges.is_array()) Fail("{}: model.merges is not a list", file.name);
  std::vector<WrittenToken> entries;
  entries.reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) entries.push_back({token, IdOf(id)});
  vocabulary.added = ReadAdded(file.name, root, vocab, &entries);

  if (vocabulary.rules.symbols == SymbolRule::kBytes) {
    FillByteLevel(entries, file.name, &vocabulary);
    FindByteTokens(vocabulary.tokens, file.name);
    AddEndOfText(&vocabulary);
    ReadMergeList(file.name, merges, ByteLevelFinder(vocabulary.tokens), &vocabulary.merges);
  } else {
    FillCharacters(entries, file.name, &vocabulary);
    const auto find = [&](std::string_view token) -> std::optional<std::int32_t> {
      const auto found = vocab.find(token);
      if (found == vocab.end()) return std::nullopt;
      return static_cast<std::int32_t>(IdOf(*found));
    };
    ReadMergeList(file.name, merges, find, &vocabulary.merges);
    if (vocabulary.rules.words == WordRule::kWhole && !TokensCrossWords(vocabulary)) {
      vocabulary.rules.words = WordRule::kSpaceRuns;
    }
  }
  vocabulary.begin_of_text = ReadBeginOfText(file.name, root, vocabulary.tokens.size());
  return vocabulary;
}

}  // namespace clearhead
