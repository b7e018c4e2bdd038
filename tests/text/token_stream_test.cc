// SPDX-License-Identifier: MIT
#include "text/token_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "text/bpe_train.h"
#include "text/test_tokenizer.h"

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

}  // namespace
}  // namespace clearhead
