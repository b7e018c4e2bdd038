// SPDX-License-Identifier: MIT
// The first byte chooses: vocab.json and merges.txt (separated by a zero byte), tokenizer.json,
// more tokens and merges for a good vocabulary (so that mutations reach the checks behind the
// parser), or a text for encode and decode. A file may be refused with Error; whatever loads must
// encode any bytes and give them back.
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

void CheckRoundTrip(const Tokenizer& tokenizer, std::string_view text) {
  for (const auto special : {SpecialTokens::kRecognise, SpecialTokens::kAsText}) {
    const std::vector<std::int32_t> ids = tokenizer.Encode(text, special);
    Require(tokenizer.DecodeBytes(ids) == text);
    Require(EncodeParallel(tokenizer, text, special, /*chunk_bytes=*/5) == ids);
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
  if (size == 0) return 0;
  std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view whole = input;
  std::optional<Tokenizer> tokenizer;
  switch (data[0] % 5) {
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
    default:
      tokenizer = Trained();
  }
  if (tokenizer) CheckRoundTrip(*tokenizer, whole);
  return 0;
}
