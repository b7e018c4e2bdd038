// SPDX-License-Identifier: MIT
#include "text/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "text/utf8.h"
#include "text/vocabulary_reader.h"

namespace clearhead {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kMaxFileBytes = 1ull << 28;
constexpr const char* kJson = "tokenizer.json";
constexpr const char* kVocab = "vocab.json";
constexpr const char* kMerges = "merges.txt";
constexpr const char* kBin = "tokenizer.bin";
constexpr const char* kConfig = "tokenizer_config.json";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The names of the files to read, by the order in the header; none if there is no tokenizer.
std::vector<std::string> FilesIn(const fs::path& directory) {
  if (Exists(directory / kJson)) return {kJson};
  if (Exists(directory / kVocab) && Exists(directory / kMerges)) return {kVocab, kMerges};
  if (Exists(directory / kBin)) return {kBin};
  return {};
}

// The id of a token that tokenizer_config.json names, as text or as an object with `content`.
std::optional<std::int32_t> ConfigToken(const Json& config, const char* key,
                                        const Vocabulary& vocabulary) {
  if (!config.contains(key)) return std::nullopt;
  const Json* name = &config[key];
  if (name->is_object() && name->contains("content")) name = &(*name)["content"];
  if (!name->is_string()) return std::nullopt;
  const auto& content = name->get_ref<const std::string&>();
  for (const AddedToken& token : vocabulary.added) {
    if (token.content == content) return token.id;
  }
  return vocabulary.tokens.Find(content);
}

void ReadTokenizerConfig(NamedText file, Vocabulary* vocabulary) {
  const Json config = ParseJson(file.text, file.name);
  if (!config.is_object()) Fail("{}: expected a JSON object", file.name);
  if (!vocabulary->end_of_text) {
    vocabulary->end_of_text = ConfigToken(config, "eos_token", *vocabulary);
  }
  if (!config.contains("add_bos_token") || !config["add_bos_token"].is_boolean()) return;
  if (!config["add_bos_token"].get<bool>()) {
    vocabulary->begin_of_text.reset();
    return;
  }
  if (vocabulary->begin_of_text) return;
  vocabulary->begin_of_text = ConfigToken(config, "bos_token", *vocabulary);
  if (!vocabulary->begin_of_text) {
    Fail("{}: add_bos_token is true, but bos_token is no token of the vocabulary", file.name);
  }
}

// True if vocab.json and merges.txt can say it all.
bool FitsThePair(const Vocabulary& vocabulary) {
  return vocabulary.rules == TextRules() && !vocabulary.begin_of_text &&
         std::all_of(vocabulary.added.begin(), vocabulary.added.end(),
                     [](const AddedToken& token) { return token.content == kEndOfText; });
}

}  // namespace

bool HasTokenizer(const fs::path& directory) { return !FilesIn(directory).empty(); }

TokenizerFolder ReadTokenizerFolder(const fs::path& directory) {
  TokenizerFolder folder;
  std::vector<std::string> names = FilesIn(directory);
  if (names.empty()) {
    Fail(
        "no tokenizer in '{}': expected tokenizer.json, vocab.json and merges.txt, or "
        "tokenizer.bin",
        directory.string());
  }
  if (Exists(directory / kConfig)) names.emplace_back(kConfig);
  for (const std::string& name : names) {
    folder.files.push_back({name, ReadFile(directory / name, kMaxFileBytes)});
  }
  const auto named = [&](std::size_t i, const std::string& path) {
    return NamedText{folder.files[i].content, path};
  };
  const std::string first = (directory / names[0]).string();
  if (names[0] == kJson) {
    folder.vocabulary = ReadTokenizerJson(named(0, first));
  } else if (names[0] == kVocab) {
    const std::string second = (directory / names[1]).string();
    folder.vocabulary = ReadVocabularyAndMerges(named(0, first), named(1, second));
  } else {
    folder.vocabulary = ReadTokenizerBin(named(0, first));
  }
  if (names.back() == kConfig) {
    const std::string config = (directory / kConfig).string();
    ReadTokenizerConfig(named(names.size() - 1, config), &folder.vocabulary);
  }
  return folder;
}

void SaveTokenizerFiles(const Vocabulary& vocabulary, std::span<const TokenizerFile> files,
                        const fs::path& directory) {
  std::vector<TokenizerFile> written(files.begin(), files.end());
  if (FitsThePair(vocabulary)) {
    written = {{kVocab, WriteVocabJson(vocabulary)}, {kMerges, WriteMergesTxt(vocabulary)}};
  } else if (written.empty()) {
    const std::string_view odd =
        vocabulary.added.empty() ? "its rules" : std::string_view(vocabulary.added[0].content);
    Fail("cannot save the tokenizer to '{}': vocab.json and merges.txt have no place for '{}'",
         directory.string(), ToValidUtf8(odd));
  }
  for (const char* name : {kJson, kVocab}) {
    if (written.front().name == name) break;
    if (Exists(directory / name)) {
      Fail("'{}' holds the {} of another tokenizer; remove it, or choose another folder",
           directory.string(), name);
    }
  }
  MakeDirectory(directory);
  for (const TokenizerFile& file : written) WriteFile(directory / file.name, file.content);
}

}  // namespace clearhead
