// SPDX-License-Identifier: MIT
#include "text/tokenizer_json_rules.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "text/pretokenize.h"
#include "text/vocabulary_reader.h"

namespace clearhead {
namespace {

std::string TypeOf(const Document& component) {
  const Document& type = Member(component, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

[[noreturn]] void Refuse(std::string_view name, std::string_view kind, const Document& component,
                         std::string_view expected) {
  const Document& type = component.is_object() ? Member(component, "type") : component;
  Fail("{}: the {} is {}; supported are {}", name, kind, Shown(type), expected);
}

// The parts of a Sequence, itself if it is none, nothing for null.
std::vector<const Document*> PartsOf(std::string_view name, const Document& component,
                                     const char* list) {
  std::vector<const Document*> parts;
  if (component.is_null()) return parts;
  if (TypeOf(component) != "Sequence") return {&component};
  if (!Member(component, list).is_array()) Fail("{}: a Sequence has no list '{}'", name, list);
  for (const Document& part : Member(component, list)) parts.push_back(&part);
  return parts;
}

bool IsReplace(const Document& part, std::string_view from, std::string_view to) {
  return TypeOf(part) == "Replace" && Member(part, "pattern") == Document({{"String", from}}) &&
         Member(part, "content") == Document(to);
}

// What the normalizer and the pre-tokenizer say about spaces.
struct Seen {
  bool replaces = false;   // the normalizer makes spaces U+2581
  bool metaspace = false;  // the pre-tokenizer does
};

void ReadNormalizer(std::string_view name, const Document& root, TextRules* rules, Seen* seen) {
  for (const Document* part : PartsOf(name, Member(root, "normalizer"), "normalizers")) {
    if (TypeOf(*part) == "NFC") {
      rules->nfc = true;
    } else if (TypeOf(*part) == "Prepend" && Member(*part, "prepend") == Document(kSpaceMark)) {
      rules->prefix = PrefixRule::kAlways;
    } else if (IsReplace(*part, " ", kSpaceMark)) {
      seen->replaces = true;
    } else {
      Refuse(name, "normalizer", *part,
             "none, NFC, and Prepend \"\u2581\" with Replace \" \" by \"\u2581\"");
    }
  }
  if (rules->prefix == PrefixRule::kAlways && !seen->replaces) {
    Fail("{}: the normalizer has Prepend without Replace \" \" by \"\u2581\"", name);
  }
}

// "never", "first" or "always", also as older files write it.
std::string PrependScheme(std::string_view name, const Document& metaspace) {
  const Document& scheme = Member(metaspace, "prepend_scheme");
  if (scheme.is_null()) {
    return Member(metaspace, "add_prefix_space") == Document(false) ? "never" : "always";
  }
  for (const char* known : {"never", "first", "always"}) {
    if (scheme == Document(known)) return known;
  }
  Fail("{}: the setting prepend_scheme = {} is not supported; expected first, always or never",
       name, Shown(scheme));
}

void ReadMetaspace(std::string_view name, const Document& part, TextRules* rules) {
  if (Member(part, "replacement") != Document(kSpaceMark)) {
    Fail("{}: the setting replacement = {} is not supported; expected \"\u2581\"", name,
         Shown(Member(part, "replacement")));
  }
  const std::string scheme = PrependScheme(name, part);
  if (scheme == "first") rules->prefix = PrefixRule::kFirst;
  if (scheme == "always") rules->prefix = PrefixRule::kUnlessSpace;
  const bool split = Member(part, "split") != Document(false);
  rules->words = split ? WordRule::kEverySpace : WordRule::kWhole;
}

// The known pattern that a Split has. All of them match every character, so that what lies between
// matches is nothing: keeping the matches and removing the rest is the same as isolating them.
WordRule ReadSplit(std::string_view name, const Document& split) {
  const bool inverted = Member(split, "invert") == Document(true);
  const Document& behavior = Member(split, "behavior");
  if (behavior != Document("Isolated") && !(behavior == Document("Removed") && inverted)) {
    Fail("{}: the pre_tokenizer Split with behavior = {} is not supported; expected \"Isolated\"",
         name, Shown(behavior));
  }
  const Document& pattern = Member(Member(split, "pattern"), "Regex");
  for (const WordRule rule : {WordRule::kGpt2, WordRule::kLlama3, WordRule::kQwen2}) {
    if (pattern == Document(WrittenPattern(rule))) return rule;
  }
  Fail("{}: the pre_tokenizer splits by {}; supported are the patterns of GPT-2, Llama 3 and Qwen2",
       name, Shown(Member(split, "pattern")));
}

constexpr std::string_view kPreTokenizers =
    "ByteLevel, Split with ByteLevel, Metaspace, and none after a Replace normalizer";

void ReadPreTokenizer(std::string_view name, const Document& root, TextRules* rules, Seen* seen) {
  const Document& whole = Member(root, "pre_tokenizer");
  bool split = false, byte_level = false;
  for (const Document* part : PartsOf(name, whole, "pretokenizers")) {
    const std::string type = TypeOf(*part);
    if (type == "Split" && !split && !byte_level) {
      split = true;
      rules->words = ReadSplit(name, *part);
    } else if (type == "ByteLevel" && !byte_level) {
      byte_level = true;
      ExpectSetting(name, *part, "add_prefix_space", {false});
      ExpectSetting(name, *part, "use_regex", {!split});
      if (split && Member(*part, "use_regex").is_null()) {
        Fail("{}: the pre_tokenizer has Split and a ByteLevel that splits again", name);
      }
    } else if (type == "Metaspace" && !split && !byte_level && !seen->metaspace) {
      seen->metaspace = true;
      ReadMetaspace(name, *part, rules);
    } else {
      Refuse(name, "pre_tokenizer", *part, kPreTokenizers);
    }
  }
  const int ways = (byte_level ? 1 : 0) + (seen->metaspace ? 1 : 0) + (seen->replaces ? 1 : 0);
  if (ways != 1 || (split && !byte_level)) Refuse(name, "pre_tokenizer", whole, kPreTokenizers);
  if (byte_level) return;
  rules->symbols = SymbolRule::kCharacters;
  rules->marks_are_spaces = true;
  if (seen->replaces) rules->words = WordRule::kWhole;
}

void ReadDecoder(std::string_view name, const Document& root, TextRules* rules) {
  const Document& whole = Member(root, "decoder");
  const bool bytes = rules->symbols == SymbolRule::kBytes;
  const std::string_view expected =
      bytes ? "ByteLevel"
            : "Metaspace, and Replace \"\u2581\" by \" \" with ByteFallback, Fuse, Strip";
  if (bytes) {
    if (!whole.is_null() && TypeOf(whole) != "ByteLevel") Refuse(name, "decoder", whole, expected);
    return;
  }
  bool spaces = false, fused = false;
  for (const Document* part : PartsOf(name, whole, "decoders")) {
    const std::string type = TypeOf(*part);
    if (type == "Metaspace" && Member(*part, "replacement") == Document(kSpaceMark)) {
      spaces = true;
      if (PrependScheme(name, *part) != "never") rules->leading = LeadingSpace::kFirstTokenHasNone;
    } else if (IsReplace(*part, kSpaceMark, " ")) {
      spaces = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip" && fused && rules->leading == LeadingSpace::kKept &&
               Member(*part, "content") == Document(" ") && Member(*part, "start") == Document(1) &&
               Member(*part, "stop") == Document(0)) {
      rules->leading = LeadingSpace::kDropped;
    } else if (type != "ByteFallback") {
      Refuse(name, "decoder", *part, expected);
    }
  }
  if (!spaces) Refuse(name, "decoder", whole, expected);
}

void ReadModelSettings(std::string_view name, const Document& root, TextRules* rules) {
  const Document& model = Member(root, "model");
  if (!model.is_object()) Fail("{}: there is no model", name);
  // GPT-2's first tokenizer.json was written before models had a type.
  if (!Member(model, "type").is_null() && TypeOf(model) != "BPE") {
    Refuse(name, "model", model, "BPE");
  }
  ExpectSetting(name, model, "dropout", {0.0});
  ExpectSetting(name, model, "continuing_subword_prefix", {""});
  ExpectSetting(name, model, "end_of_word_suffix", {""});
  const Document& whole_words = Member(model, "ignore_merges");
  if (rules->symbols == SymbolRule::kBytes) {
    ExpectSetting(name, model, "byte_fallback", {false});
    rules->whole_words = whole_words == Document(true);
    if (!rules->whole_words) ExpectSetting(name, model, "ignore_merges", {false});
    return;
  }
  ExpectSetting(name, model, "ignore_merges", {false});
  if (Member(model, "byte_fallback") != Document(true)) {
    Fail(
        "{}: a vocabulary of characters without byte_fallback is not supported: it would lose text",
        name);
  }
}

// Appends the special tokens that a template puts before the text.
void ReadTemplate(std::string_view name, const Document& processor,
                  std::vector<std::string>* first) {
  const Document& single = Member(processor, "single");
  if (!single.is_array()) Fail("{}: the post_processor TemplateProcessing has no 'single'", name);
  for (const Document& part : single) {
    if (!Member(part, "Sequence").is_null()) return;
    const Document& id = Member(Member(part, "SpecialToken"), "id");
    if (!id.is_string()) break;
    first->push_back(id.get<std::string>());
  }
  Fail("{}: the post_processor TemplateProcessing does not say where the text goes", name);
}

}  // namespace

const Document& Member(const Document& object, const char* key) {
  static const Document null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::string Shown(const Document& value) { return Shorten(value.dump()); }

void ExpectSetting(std::string_view name, const Document& object, const char* key,
                   std::initializer_list<Document> harmless) {
  const Document& value = Member(object, key);
  if (value.is_null() || std::find(harmless.begin(), harmless.end(), value) != harmless.end())
    return;
  Fail("{}: the setting {} = {} is not supported; expected {}", name, key, Shown(value),
       Shown(*harmless.begin()));
}

TextRules ReadRules(std::string_view name, const Document& root) {
  TextRules rules;
  Seen seen;
  ReadNormalizer(name, root, &rules, &seen);
  ReadPreTokenizer(name, root, &rules, &seen);
  ReadDecoder(name, root, &rules);
  ReadModelSettings(name, root, &rules);
  return rules;
}

std::optional<std::int32_t> ReadBeginOfText(std::string_view name, const Document& root,
                                            std::int32_t vocabulary_size) {
  std::vector<std::string> first;
  const Document* named = nullptr;  // the template's own table of tokens
  for (const Document* part : PartsOf(name, Member(root, "post_processor"), "processors")) {
    const std::string type = TypeOf(*part);
    if (type == "TemplateProcessing") {
      ReadTemplate(name, *part, &first);
      named = &Member(*part, "special_tokens");
    } else if (type != "ByteLevel") {
      Refuse(name, "post_processor", *part, "ByteLevel and TemplateProcessing");
    }
  }
  if (first.empty()) return std::nullopt;
  if (first.size() > 1) {
    Fail("{}: the post_processor puts {} tokens before the text; only one is supported", name,
         first.size());
  }
  const Document& ids = Member(Member(*named, first[0].c_str()), "ids");
  if (!ids.is_array() || ids.size() != 1 || !ids[0].is_number_unsigned() ||
      ids[0].get<std::uint64_t>() >= static_cast<std::uint64_t>(vocabulary_size)) {
    Fail("{}: the post_processor's token {} has no single id in 0..{}", name, Quote(first[0]),
         vocabulary_size - 1);
  }
  return ids[0].get<std::int32_t>();
}

}  // namespace clearhead
