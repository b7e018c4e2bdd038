// SPDX-License-Identifier: MIT
// The reference tokenizers' own answers (tests/data/tokenizer), with GPT-2's vocabulary.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "text/fetched_gpt2.h"
#include "text/sha256.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace clearhead {
namespace {

Json Golden(const char* file) {
  return ReadJsonFile(std::filesystem::path(CLEARHEAD_TEST_DATA) / "tokenizer" / file);
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

using Ids = std::vector<std::int32_t>;

TEST(Golden, Sha256KnowsTheStandardsExample) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Golden, EncodesAsTheReference) {
  const auto tokenizer = FetchedGpt2();
  ASSERT_TRUE(tokenizer);
  const Json golden = Golden("encode.json");
  ASSERT_EQ(golden["cases"].size(), 349u);
  for (const Json& test : golden["cases"]) {
    const std::string text = FromHex(test["utf8_hex"]);
    ASSERT_EQ(text, test["text"].get<std::string>());
    SCOPED_TRACE(ToText(test["category"]) + " " + ToText(test["text"]).substr(0, 200));
    const Ids ids = tokenizer->Encode(text);
    EXPECT_EQ(ids, test["ids"].get<Ids>());
    EXPECT_EQ(tokenizer->DecodeBytes(ids), text);
    const Ids plain = tokenizer->Encode(text, SpecialTokens::kAsText);
    EXPECT_EQ(plain, test["ids_no_special"].get<Ids>());
    EXPECT_EQ(tokenizer->DecodeBytes(plain), text);
    Ids without_special;
    for (const std::int32_t id : ids) {
      if (id != tokenizer->end_of_text()) without_special.push_back(id);
    }
    EXPECT_EQ(tokenizer->DecodeBytes(without_special),
              test["decoded_skip_special"].get<std::string>());
  }
}

TEST(Golden, DecodesAsTheReference) {
  const auto tokenizer = FetchedGpt2();
  ASSERT_TRUE(tokenizer);
  const Json golden = Golden("decode.json");
  ASSERT_EQ(golden["cases"].size(), 404u);
  for (const Json& test : golden["cases"]) {
    const Ids ids = test["ids"].get<Ids>();
    SCOPED_TRACE(ToText(test["ids"], -1).substr(0, 200));
    const std::string bytes = tokenizer->DecodeBytes(ids);
    EXPECT_EQ(bytes, FromHex(test["bytes_hex"]));
    EXPECT_EQ(ToValidUtf8(bytes), test["text"].get<std::string>());
    if (ids.size() == 1) {
      EXPECT_EQ(tokenizer->TokenText(ids[0]), test["text"].get<std::string>());
    }
  }
}

TEST(Golden, HasEveryTokensBytes) {
  const auto tokenizer = FetchedGpt2();
  ASSERT_TRUE(tokenizer);
  const Json digest = Golden("vocab-digest.json");
  EXPECT_EQ(tokenizer->vocabulary_size(), digest["vocab_size"].get<std::int32_t>());
  EXPECT_EQ(tokenizer->end_of_text(), digest["endoftext_id"].get<std::int32_t>());
  EXPECT_EQ(tokenizer->vocabulary().merges.size(), digest["merges"].get<std::size_t>());
  std::string all;
  for (std::int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
    const std::string_view bytes = tokenizer->TokenBytes(id);
    for (int shift = 0; shift < 32; shift += 8) all += static_cast<char>(bytes.size() >> shift);
    all += bytes;
    EXPECT_EQ(tokenizer->FindToken(bytes), id);
  }
  EXPECT_EQ(Sha256Hex(all), digest["all_tokens_sha256"].get<std::string>());
}

}  // namespace
}  // namespace clearhead
