// SPDX-License-Identifier: MIT
#include "text/token_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "support/temporary_folder.h"
#include "text/bpe_train.h"
#include "text/test_tokenizer.h"
#include "text/token_file.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;

Tokenizer Trained() {
  const std::string text = MakeText(20000, 1);
  const std::vector<std::string_view> texts = {text};
  return TrainBpe(texts, {.vocabulary_size = 500});
}

// Chunks of any size give what one call gives.
TEST(TokenStream, ChunksChangeNothing) {
  const Tokenizer tokenizer = Trained();
  std::vector<std::string> texts = {
      "", " ", "a", std::string(5000, ' '), std::string(5000, 'a'), RandomBytes(3001, 2)};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::string text = seed % 2 ? RandomNearUtf8(2003, seed) : MakeText(2003, seed);
    for (std::size_t at = 97; at < text.size(); at += 307) text.insert(at, kEndOfText);
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    for (const auto special : {SpecialTokens::kRecognise, SpecialTokens::kAsText}) {
      const Ids whole = tokenizer.Encode(text, special);
      for (const std::size_t chunk : {0, 1, 2, 7, 64, 1000, 1 << 20}) {
        EXPECT_EQ(EncodeParallel(tokenizer, text, special, chunk), whole) << chunk;
      }
    }
  }
}

TEST(TokenStream, FilesAsOneString) {
  const Tokenizer tokenizer = Trained();
  TemporaryFolder folder;
  const std::string text = MakeText(3 * kStreamChunkBytes + 17, 4);
  WriteFile(folder / "long.txt", text);
  WriteFile(folder / "short.txt", "the other<|endoftext|>");
  WriteFile(folder / "empty.txt", "");
  EXPECT_EQ(EncodeFile(tokenizer, folder / "long.txt"), tokenizer.Encode(text));
  EXPECT_EQ(EncodeFile(tokenizer, folder / "empty.txt"), Ids{});
  const std::string plain = "the other<|endoftext|>";
  EXPECT_EQ(EncodeFile(tokenizer, folder / "short.txt", SpecialTokens::kAsText),
            tokenizer.Encode(plain, SpecialTokens::kAsText));
  const std::vector<std::filesystem::path> paths = {folder / "short.txt", folder / "long.txt"};
  EXPECT_EQ(EncodeFiles(tokenizer, paths),
            tokenizer.Encode("the other<|endoftext|><|endoftext|>" + text));
  EXPECT_THROW(EncodeFile(tokenizer, folder / "none.txt"), Error);
}

// Between texts, as they are: no token is put before or behind them.
TEST(TokenStream, TokenFilesAreTakenAsTheyAre) {
  const Tokenizer tokenizer = Trained();
  TemporaryFolder folder;
  const Ids ids = {3, *tokenizer.end_of_text(), 7, 300};
  WriteTokenFile(folder / "own.safetensors", ids);
  WriteFile(folder / "text.txt", "the other");
  EXPECT_EQ(EncodeDocument(tokenizer, folder / "own.safetensors"), ids);
  const std::vector<std::filesystem::path> paths = {folder / "own.safetensors",
                                                    folder / "own.safetensors"};
  EXPECT_EQ(EncodeFiles(tokenizer, paths).size(), 2 * ids.size());
  WriteTokenFile(folder / "none.safetensors", {});
  EXPECT_EQ(ReadTokenFile(folder / "none.safetensors", 5), Ids{});
}

TEST(TokenStream, TokenFilesOfAnotherModelAreRefused) {
  TemporaryFolder folder;
  const auto message = [&](const Ids& ids) -> std::string {
    WriteTokenFile(folder / "own.safetensors", ids);
    try {
      ReadTokenFile(folder / "own.safetensors", 10);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({0, 9}), "");
  EXPECT_NE(message({0, 10}).find("token 1 is 10"), std::string::npos);
  EXPECT_NE(message({-1}).find("token 0 is -1"), std::string::npos);
  const std::vector<float> wrong = {1.0f};
  WriteSafetensors(folder / "f.safetensors",
                   std::vector<TensorToWrite>{{.name = "ids", .shape = {1}, .data = wrong.data()}});
  EXPECT_THROW(ReadTokenFile(folder / "f.safetensors", 10), Error);
}

}  // namespace
}  // namespace clearhead
