// SPDX-License-Identifier: MIT
#include "use/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "support/temporary_folder.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

template <typename T>
void Number(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void Text(std::string* out, const std::string& text) {
  Number(out, static_cast<std::uint64_t>(text.size()));
  *out += text;
}

// A file with a tokenizer and no tensor.
std::string FileWith(const std::string& kind, const std::vector<std::string>& pieces,
                     std::size_t scores) {
  std::string bytes = "GGUF";
  Number(&bytes, std::uint32_t{3});
  Number(&bytes, std::uint64_t{0});
  Number(&bytes, std::uint64_t{3});
  Text(&bytes, "tokenizer.ggml.model");
  Number(&bytes, std::uint32_t{8});
  Text(&bytes, kind);
  Text(&bytes, "tokenizer.ggml.tokens");
  Number(&bytes, std::uint32_t{9});
  Number(&bytes, std::uint32_t{8});
  Number(&bytes, static_cast<std::uint64_t>(pieces.size()));
  for (const std::string& piece : pieces) Text(&bytes, piece);
  Text(&bytes, "tokenizer.ggml.scores");
  Number(&bytes, std::uint32_t{9});
  Number(&bytes, std::uint32_t{6});
  Number(&bytes, static_cast<std::uint64_t>(scores));
  for (std::size_t i = 0; i < scores; ++i) Number(&bytes, -static_cast<float>(i));
  return bytes;
}

std::vector<std::string> Pieces() {
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) pieces.push_back(fmt::format("<0x{:02X}>", byte));
  // The earlier, the sooner merged: "▁" + "a", then "▁a" + "b".
  for (const char* piece : {"\xe2\x96\x81"
                            "a",
                            "\xe2\x96\x81"
                            "ab",
                            "\xe2\x96\x81", "a", "b", "c"})
    pieces.emplace_back(piece);
  return pieces;
}

TEST(GgufTokenizer, EncodesAsItsPiecesSay) {
  const TemporaryFolder folder;
  WriteFile(folder / "m.gguf", FileWith("llama", Pieces(), 265));
  const auto bytes = TokenizerInside(folder / "m.gguf");
  ASSERT_TRUE(bytes.has_value());
  const Tokenizer tokenizer = Tokenizer::FromTokenizerBin(*bytes);
  EXPECT_EQ(tokenizer.vocabulary_size(), 265);
  // A space before the text; "ab" with it is one piece, "c" is its own, "d" only has its byte.
  EXPECT_EQ(tokenizer.Encode("abcd"), (std::vector<std::int32_t>{260, 264, 3 + 'd'}));
}

TEST(GgufTokenizer, OtherKindsAreLeftToTheirOwnFiles) {
  const TemporaryFolder folder;
  WriteFile(folder / "m.gguf", FileWith("gpt2", Pieces(), 265));
  EXPECT_FALSE(TokenizerInside(folder / "m.gguf").has_value());
  WriteFile(folder / "m.gguf", FileWith("llama", {"<unk>", "a"}, 2));
  EXPECT_FALSE(TokenizerInside(folder / "m.gguf").has_value());
  WriteFile(folder / "m.gguf", "no such file");
  EXPECT_FALSE(TokenizerInside(folder / "m.gguf").has_value());
  WriteFile(folder / "m.gguf", FileWith("llama", Pieces(), 264));
  EXPECT_THROW(TokenizerInside(folder / "m.gguf"), Error);
}

}  // namespace
}  // namespace clearhead
