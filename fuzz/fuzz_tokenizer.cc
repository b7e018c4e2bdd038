// SPDX-License-Identifier: MIT
// The first byte chooses: vocab.json and merges.txt (separated by a zero byte), tokenizer.json,
// tokenizer.bin, more tokens, merges, pieces or rules for a good vocabulary of bytes or characters
// (so that mutations reach the checks behind the parser), or a text for encode and decode. A file
// may be refused with Error; whatever loads must encode any bytes, in parts as in one piece, and
// give them back where its rules promise that.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "text/bpe_train.h"
#include "text/byte_map.h"
#include "text/token_stream.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace clearhead;  // NOLINT(google-build-using-namespace): a program, not a library

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckTokenizer(const Tokenizer& tokenizer, std::string_view text) {
  const TextRules& rules = tokenizer.vocabulary().rules;
  for (const auto special : {SpecialTokens::kRecognise, SpecialTokens::kAsText}) {
    const std::vector<std::int32_t> ids = tokenizer.Encode(text, special);
    Require(EncodeParallel(tokenizer, text, special, /*chunk_bytes=*/5) == ids);
    if (rules.symbols == SymbolRule::kBytes && !rules.nfc) {
      Require(tokenizer.DecodeBytes(ids) == text);
    }
    if (rules.merging == MergeRule::kScores) {
      Require(tokenizer.DecodePrompt(tokenizer.EncodePrompt(text, special)) == text);
    }
    if (rules.prefix == PrefixRule::kAlways && rules.leading == LeadingSpace::kDropped &&
        !rules.nfc && tokenizer.vocabulary().added.empty() &&
        text.find(kSpaceMark) == std::string_view::npos) {
      Require(tokenizer.DecodeBytes(ids) == text);
    }
    tokenizer.DecodePrompt(tokenizer.EncodeContinuation(text, special));
    for (const std::int32_t id : ids) {
      const std::string shown = tokenizer.TokenText(id);
      Require(FindIllFormed(shown) == shown.size());
    }
  }
}

template <typename Load>
std::optional<Tokenizer> TryLoad(const Load& load) {
  try {
    return load();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What comes before the first `separator`; the rest stays in `text`.
std::string_view TakePart(std::string_view* text, char separator) {
  const std::size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

// {"!": 0, ... the 256 bytes ..., without the closing brace.
std::string OpenByteVocabulary() {
  std::string json = "{";
  int id = 0;
  for (const unsigned char byte : BytesInSymbolOrder()) {
    const char c = static_cast<char>(byte);
    const std::string symbol = BytesToSymbols({&c, 1});
    const bool escape = c == '"' || c == '\\';
    json += fmt::format("{}\"{}{}\": {}", id == 0 ? "" : ", ", escape ? "\\" : "", symbol, id);
    ++id;
  }
  return json;
}

// {"<unk>": 0, "<s>": 1, ... the 256 bytes, some characters ..., without the closing brace.
std::string OpenCharacterVocabulary() {
  std::string json = R"({"<unk>": 0, "<s>": 1, "</s>": 2)";
  for (int byte = 0; byte < 256; ++byte) {
    json += fmt::format(", \"<0x{:02X}>\": {}", byte, 3 + byte);
  }
  int id = 259;
  for (const char* piece : {"\u2581", "a", "b", "\u2581a", "ab", "\u2581\u2581", "\u00E9", "t"}) {
    json += fmt::format(", \"{}\": {}", piece, id++);
  }
  return json;
}

// Normalizer, pre-tokenizer and decoder as a vocabulary of characters may have them.
std::string CharacterRules(unsigned choice) {
  const std::string replace =
      R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})";
  const std::string normalizers[] = {
      R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, )" +
          replace + "]}",
      replace, "null", R"({"type": "NFC"})"};
  const char* schemes[] = {"first", "always", "never"};
  const unsigned normalizer = choice % 4;
  std::string rules = "\"normalizer\": " + normalizers[normalizer];
  if (normalizer >= 2) {
    rules += fmt::format(R"(, "pre_tokenizer": {{"type": "Metaspace", "replacement": "\u2581", )"
                         R"("prepend_scheme": "{}", "split": {}}})",
                         schemes[choice / 4 % 3], choice / 12 % 2 == 0);
  }
  return rules +
         R"(, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": )"
         R"({"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, )"
         R"({"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
}

// tokenizer.bin's beginning: unknown, begin, end and the bytes.
std::string OpenBin() {
  std::string file("\x40\0\0\0", 4);
  const auto add = [&](std::string_view name) {
    file.append(4, '\0');
    file += static_cast<char>(name.size());
    file.append(3, '\0').append(name);
  };
  for (const char* name : {"<unk>", "<s>", "</s>"}) add(name);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte));
  return file;
}

const Tokenizer& Trained() {
  static const Tokenizer tokenizer = [] {
    const std::vector<std::string_view> texts = {
        "the other then these there don't she'll    \n\n\n 1984 aaaa "
        "\xF0\x9F\x99\x82\xF0\x9F\x99\x82 "
        "\xE6\x97\xA5\xE6\x97\xA5 \xFF\xFF\xFF <|end <|end text|> text|>"};
    return TrainBpe(texts, {.vocabulary_size = 400});
  }();
  return tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string kBytes = OpenByteVocabulary();
  static const std::string kCharacters = OpenCharacterVocabulary();
  static const std::string kBin = OpenBin();
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view whole = input;
  std::optional<Tokenizer> tokenizer;
  switch (data[0] % 10) {
    case 0: {
      const std::string_view vocab = TakePart(&input, '\0');
      tokenizer = TryLoad([&] { return Tokenizer::FromVocabularyAndMerges(vocab, input); });
      break;
    }
    case 1:
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerJson(input); });
      break;
    case 2: {
      const std::string vocab = kBytes + std::string(TakePart(&input, '\0')) + "}";
      tokenizer = TryLoad([&] { return Tokenizer::FromVocabularyAndMerges(vocab, input); });
      break;
    }
    case 3: {
      const std::string more(TakePart(&input, '\0'));
      const std::string merges(TakePart(&input, '\0'));
      const std::string json = R"({"pre_tokenizer": {"type": "ByteLevel"}, "model": {"vocab": )" +
                               kBytes + more + R"(}, "merges": [)" + merges + "]" +
                               std::string(TakePart(&input, '\0')) + R"(}, "added_tokens": [)" +
                               std::string(input) + "]}";
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerJson(json); });
      break;
    }
    case 4:
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerBin(input); });
      break;
    case 5: {  // pieces as lines: a byte for the score, the text
      std::string file = kBin;
      while (!input.empty()) {
        const std::string_view line = TakePart(&input, '\n');
        const float score = line.empty() ? 0.0f : static_cast<float>(line[0] % 8);
        const std::string_view piece = line.empty() ? line : line.substr(1);
        const auto length = static_cast<std::int32_t>(piece.size());
        file.append(reinterpret_cast<const char*>(&score), sizeof score);
        file.append(reinterpret_cast<const char*>(&length), sizeof length);
        file.append(piece);
      }
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerBin(file); });
      break;
    }
    case 6: {  // characters: rules, more tokens, merges, added tokens
      const unsigned choice = input.empty() ? 0 : static_cast<unsigned char>(input[0]);
      const std::string more(TakePart(&input, '\0'));
      const std::string merges(TakePart(&input, '\0'));
      const std::string json = "{" + CharacterRules(choice) +
                               R"(, "model": {"byte_fallback": true, "vocab": )" + kCharacters +
                               (more.empty() ? more : more.substr(1)) + R"(}, "merges": [)" +
                               merges + R"(]}, "added_tokens": [)" + std::string(input) + "]}";
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerJson(json); });
      break;
    }
    case 7:
    case 8: {  // any rules for a good model of bytes or characters
      const bool bytes = data[0] % 10 == 7;
      const std::string json = "{" + std::string(input) + R"(, "model": {"ignore_merges": )" +
                               (bytes ? "true" : R"(false, "byte_fallback": true)") +
                               R"(, "vocab": )" + (bytes ? kBytes : kCharacters) +
                               (bytes ? R"(, "ab": 256, "Ġa": 257)" : "") + R"(}, "merges": [)" +
                               (bytes ? R"("a b", "Ġ a")" : R"("\u2581 a", "a b")") + "]}}";
      tokenizer = TryLoad([&] { return Tokenizer::FromTokenizerJson(json); });
      break;
    }
    default:
      tokenizer = Trained();
  }
  if (tokenizer) CheckTokenizer(*tokenizer, whole);
  return 0;
}
