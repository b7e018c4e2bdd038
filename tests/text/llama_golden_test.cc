// SPDX-License-Identifier: MIT
// The reference tokenizers' own answers for Llama 2 and Llama 3 (tests/data/tokenizer-llama*).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/file.h"
#include "core/json.h"
#include "text/fetched_llama2.h"
#include "text/small_sentencepiece.h"
#include "text/token_stream.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path DataFolder(const char* folder) {
  return std::filesystem::path(CLEARHEAD_TEST_DATA) / folder;
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

class Llama3Golden : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Content() const { return ReadFile(DataFolder("tokenizer-llama3") / GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Merges, Llama3Golden,
                         ::testing::Values("tokenizer.json", "tokenizer-string-merges.json"));

TEST_P(Llama3Golden, EncodesAsTheReference) {
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(Content());
  Json slow = ParseJson(Content(), "test");
  slow["model"]["ignore_merges"] = false;
  const Tokenizer merging = Tokenizer::FromTokenizerJson(ToText(slow));
  EXPECT_EQ(tokenizer.vocabulary_size(), 604);
  EXPECT_EQ(tokenizer.begin_of_text(), 602);
  EXPECT_EQ(tokenizer.end_of_text(), 603);
  const Json golden = ReadJsonFile(DataFolder("tokenizer-llama3") / "encode.json");
  ASSERT_EQ(golden["cases"].size(), 84u);
  int differ = 0;
  for (const Json& test : golden["cases"]) {
    const std::string text = FromHex(test["utf8_hex"]);
    SCOPED_TRACE(ToText(test["category"]) + " " + ToText(test["text"]).substr(0, 200));
    const Ids ids = tokenizer.Encode(text);
    EXPECT_EQ(ids, test["ids"].get<Ids>());
    EXPECT_EQ(tokenizer.EncodePrompt(text), test["ids_with_bos"].get<Ids>());
    EXPECT_EQ(tokenizer.DecodeBytes(ids), text);
    EXPECT_EQ(tokenizer.DecodePrompt(tokenizer.EncodePrompt(text)), text);
    EXPECT_EQ(EncodeParallel(tokenizer, text, SpecialTokens::kRecognise, 1), ids);
    const bool matters = test.contains("ids_without_ignore_merges");
    differ += matters;
    EXPECT_EQ(merging.Encode(text), test[matters ? "ids_without_ignore_merges" : "ids"].get<Ids>());
  }
  EXPECT_GT(differ, 0);
}

TEST_P(Llama3Golden, DecodesAsTheReference) {
  const Tokenizer tokenizer = Tokenizer::FromTokenizerJson(Content());
  const Json golden = ReadJsonFile(DataFolder("tokenizer-llama3") / "decode.json");
  ASSERT_EQ(golden["cases"].size(), 40u);
  for (const Json& test : golden["cases"]) {
    const std::string bytes = tokenizer.DecodeBytes(test["ids"].get<Ids>());
    EXPECT_EQ(bytes, FromHex(test["bytes_hex"]));
    EXPECT_EQ(ToValidUtf8(bytes), test["text"].get<std::string>());
  }
}

TEST(Llama2Golden, EncodesAsTheReference) {
  const std::string file = FetchedTokenizerBin();
  if (file.empty()) GTEST_SKIP() << kNoTokenizerBin;
  const Tokenizer tokenizer = Tokenizer::FromTokenizerBin(file);
  EXPECT_EQ(tokenizer.vocabulary_size(), 32000);
  EXPECT_EQ(tokenizer.begin_of_text(), 1);
  EXPECT_EQ(tokenizer.end_of_text(), 2);
  EXPECT_EQ(tokenizer.TokenText(1), "<s>");
  EXPECT_EQ(tokenizer.TokenBytes(1), "");
  const Json golden = ReadJsonFile(DataFolder("tokenizer-llama2") / "encode.json");
  ASSERT_EQ(golden["cases"].size(), 66u);
  for (const Json& test : golden["cases"]) {
    const std::string text = FromHex(test["utf8_hex"]);
    SCOPED_TRACE(ToText(test["category"]) + " " + ToText(test["text"]).substr(0, 200));
    const Ids ids = tokenizer.Encode(text);
    EXPECT_EQ(ids, test["ids"].get<Ids>());
    EXPECT_EQ(tokenizer.DecodePrompt(tokenizer.EncodePrompt(text)), text);
    EXPECT_EQ(EncodeParallel(tokenizer, text, SpecialTokens::kRecognise, 1), ids);
  }
}

TEST(Llama2Golden, DecodesAsTheReference) {
  const std::string file = FetchedTokenizerBin();
  if (file.empty()) GTEST_SKIP() << kNoTokenizerBin;
  const Tokenizer tokenizer = Tokenizer::FromTokenizerBin(file);
  const Json golden = ReadJsonFile(DataFolder("tokenizer-llama2") / "decode.json");
  ASSERT_EQ(golden["cases"].size(), 30u);
  for (const Json& test : golden["cases"]) {
    EXPECT_EQ(tokenizer.DecodeBytes(test["ids"].get<Ids>()), FromHex(test["bytes_hex"]))
        << ToText(test["ids"], -1);
  }
}

// Llama 2's tokenizer.json, as its maker's tools derive it from the pieces: every way to join two
// pieces into a third is a merge, the best score first, then by the parts' scores.
Json DerivedTokenizerJson(const std::string& bin) {
  std::vector<std::string> pieces;
  for (std::size_t at = 4; at < bin.size();) {
    std::int32_t length = 0;
    std::memcpy(&length, bin.data() + at + 4, 4);
    std::string piece = bin.substr(at + 8, length);
    at += 8 + length;
    const std::size_t id = pieces.size();
    if (id == 1) piece = "<s>";
    if (id == 2) piece = "</s>";
    if (id >= 3 && id < 259) piece = fmt::format("<0x{:02X}>", id - 3);
    for (std::size_t i = 0; id >= 259 && (i = piece.find(' ', i)) != std::string::npos;) {
      piece.replace(i, 1, "\u2581");
    }
    pieces.push_back(piece);
  }
  std::map<std::string, std::int32_t> ids;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    ids.emplace(pieces[id], static_cast<std::int32_t>(id));
  }
  // Ids are in the order of scores, but for the pieces of spaces, which have the lowest.
  const auto rank = [&](const std::string& piece) {
    const bool spaces = piece.find_first_not_of("\u2581") == std::string::npos;
    return (spaces ? 1 << 20 : 0) + ids.at(piece);
  };
  std::vector<std::tuple<int, int, int, std::string, std::string>> merges;
  for (std::size_t id = 259; id < pieces.size(); ++id) {
    const std::string& piece = pieces[id];
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      if (left->second < 259 || right->second < 259) continue;
      merges.emplace_back(rank(piece), left->second, right->second, left->first, right->first);
    }
  }
  std::sort(merges.begin(), merges.end());
  // The model is put together as text: ordered_json looks keys up one after the other.
  std::string vocab, list;
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    vocab += fmt::format("{}{}:{}", id > 0 ? "," : "", ToText(Json(pieces[id]), -1), id);
  }
  for (const auto& [r, a, b, left, right] : merges) {
    list += fmt::format("{}{}", list.empty() ? "" : ",", ToText(Json(left + " " + right), -1));
  }
  Json frame = CharacterTokenizerJson({}, {});
  frame["model"] = "MODEL";
  frame["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{"<s>", {{"ids", {1}}}}}}};
  return {{"frame", frame},
          {"model", R"({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, )"
                    R"("byte_fallback": true, "vocab": {)" +
                        vocab + "}, \"merges\": [" + list + "]}"}};
}

std::string Assembled(const Json& derived, const Json& changes) {
  Json frame = derived["frame"];
  frame.update(changes);
  std::string text = ToText(frame);
  const std::size_t at = text.find("\"MODEL\"");
  return text.replace(at, 7, derived["model"].get<std::string>());
}

// As Llama 2's own file has it, and with the Metaspace pre-tokenizer of newer ones.
TEST(Llama2Golden, TokenizerJsonGivesTheLibrariesIds) {
  const std::string file = FetchedTokenizerBin();
  if (file.empty()) GTEST_SKIP() << kNoTokenizerBin;
  const Json derived = DerivedTokenizerJson(file);
  const Tokenizer prepend = Tokenizer::FromTokenizerJson(Assembled(derived, Json::object()));
  const Json changes = {{"normalizer", nullptr},
                        {"pre_tokenizer", Metaspace("first", /*split=*/false)}};
  const Tokenizer metaspace = Tokenizer::FromTokenizerJson(Assembled(derived, changes));
  EXPECT_EQ(prepend.begin_of_text(), 1);
  EXPECT_EQ(prepend.end_of_text(), 2);
  const Json golden = ReadJsonFile(DataFolder("tokenizer-llama2") / "encode.json");
  for (const Json& test : golden["cases"]) {
    const auto expected = [&](std::initializer_list<const char*> keys) {
      for (const char* key : keys) {
        if (test.contains(key)) return test[key].get<Ids>();
      }
      return test["ids"].get<Ids>();
    };
    const std::string text = FromHex(test["utf8_hex"]);
    SCOPED_TRACE(ToText(test["text"]));
    const Ids ids = prepend.Encode(text, SpecialTokens::kAsText);
    EXPECT_EQ(ids, expected({"ids_tokenizers_prepend", "ids_sentencepiece"}));
    EXPECT_EQ(metaspace.Encode(text), expected({"ids_transformers_llama", "ids_sentencepiece"}));
    EXPECT_EQ(EncodeParallel(prepend, text, SpecialTokens::kAsText, 1), ids);
    if (!test.contains("ids_sentencepiece")) {
      EXPECT_EQ(prepend.DecodeBytes(ids), text);
      EXPECT_EQ(prepend.DecodePrompt(prepend.EncodePrompt(text, SpecialTokens::kAsText)), text);
    }
  }
}

}  // namespace
}  // namespace clearhead
