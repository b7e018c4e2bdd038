// SPDX-License-Identifier: MIT
// llama2.c's tokenizer.bin as it comes, good and hostile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/file.h"
#include "support/temporary_folder.h"
#include "text/refusal.h"
#include "text/small_sentencepiece.h"
#include "text/tokenizer.h"

namespace clearhead {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::HasSubstr;

std::string Refused(const std::string& file) {
  return Refusal([&] { Tokenizer::FromTokenizerBin(file); });
}

TEST(TokenizerBin, ReadsBothWaysToWriteBytes) {
  const std::string names = TokenizerBin({{" ", -1}, {"a", -2}, {" a", -3}});
  std::string characters(names.substr(0, 4));
  for (const char* name : {"<unk>", "\n<s>\n", "\n</s>\n"}) AppendBinToken(&characters, name, 0);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = byte < 0x80
                                      ? std::string(1, static_cast<char>(byte))
                                      : std::string{static_cast<char>(0xC0 | (byte >> 6)),
                                                    static_cast<char>(0x80 | (byte & 0x3F))};
    AppendBinToken(&characters, character, 0);
  }
  for (const char* piece : {" ", "a", " a"}) AppendBinToken(&characters, piece, -1);
  for (const std::string& file : {names, characters}) {
    const Tokenizer tokenizer = Tokenizer::FromTokenizerBin(file);
    EXPECT_EQ(tokenizer.vocabulary_size(), 262);
    // "a" is the piece, not the byte token that may be written alike; "b" only has its byte.
    EXPECT_EQ(tokenizer.EncodePrompt("a ab\n"), (Ids{1, 261, 261, 'b' + 3, 13}));
    EXPECT_EQ(tokenizer.Encode("\u00E9\xFF"), (Ids{259, 0xC3 + 3, 0xA9 + 3, 258}));
    EXPECT_EQ(tokenizer.Encode(""), Ids{});
    EXPECT_EQ(tokenizer.EncodeContinuation("a"), Ids{260});
    EXPECT_EQ(tokenizer.DecodePrompt(Ids{1, 261, 261}), "a a");
    EXPECT_EQ(tokenizer.DecodeBytes(Ids{261}), " a");
    EXPECT_EQ(tokenizer.TokenText(2), "</s>");
  }
}

TEST(TokenizerBin, EqualScoresGoFromTheLeft) {
  // By rank of the pair "bc" would win everywhere; by score the leftmost of the two does.
  const std::vector<ScoredPiece> letters = {{"a", 0}, {"b", 0}, {"c", 0}, {" ", 0}};
  std::vector<ScoredPiece> pieces = letters;
  pieces.insert(pieces.end(), {{"bc", 5}, {"ab", 5}});
  EXPECT_EQ(Tokenizer::FromTokenizerBin(TokenizerBin(pieces)).EncodeContinuation("abc"),
            (Ids{264, 261}));
  pieces[4].score = 6;
  EXPECT_EQ(Tokenizer::FromTokenizerBin(TokenizerBin(pieces)).EncodeContinuation("abc"),
            (Ids{259, 263}));
}

TEST(TokenizerBin, SavesItsFile) {
  TemporaryFolder folder;
  const std::string file = TokenizerBin({{" ", -1}, {"a", -2}, {" a", -3}});
  WriteFile(folder / "tokenizer.bin", file);
  EXPECT_TRUE(HasTokenizer(folder.path()));
  const Tokenizer tokenizer = Tokenizer::Load(folder.path());
  EXPECT_EQ(tokenizer.EncodePrompt("a"), (Ids{1, 261}));
  tokenizer.Save(folder / "copy");
  EXPECT_EQ(ReadFile(folder / "copy/tokenizer.bin"), file);
}

TEST(TokenizerBin, RefusesBrokenFiles) {
  const std::string good = TokenizerBin({{" ", -1}, {"ab", -2}});
  EXPECT_EQ(Refused(good), "accepted");
  EXPECT_EQ(Refused(""),
            "tokenizer.bin: the file ends inside token 0; is it llama2.c's, and complete?");
  EXPECT_EQ(Refused(good.substr(0, good.size() - 1)),
            "tokenizer.bin: the file ends inside token 260; is it llama2.c's, and complete?");
  for (std::size_t size = 0; size < good.size(); ++size) {
    // Whole pieces may be missing at the end: the file does not say how many there are.
    if (size == good.size() - 10 || size == good.size() - 19) continue;
    EXPECT_NE(Refused(good.substr(0, size)), "accepted") << size;
  }
  EXPECT_EQ(Refused(good.substr(0, good.size() - 19)), "accepted") << "no pieces";
  EXPECT_THAT(Refused(good.substr(0, good.size() - 19 - 14)), HasSubstr("258 tokens"));
  EXPECT_THAT(Refused(std::string(8, '\0')), HasSubstr("the longest piece has 0 bytes"));
  EXPECT_THAT(Refused(TokenizerBin({}, -5)), HasSubstr("the longest piece has -5 bytes"));
  EXPECT_EQ(Refused(TokenizerBin({{"abcdefg", 0}}, 6)),
            "tokenizer.bin: token 259 has 7 bytes; expected 1 to 6, the longest piece's");
  EXPECT_THAT(Refused(TokenizerBin({{"", 0}})), HasSubstr("token 259 has 0 bytes"));
  std::string huge = TokenizerBin({{"a", 0}}, std::numeric_limits<std::int32_t>::max());
  huge.replace(huge.size() - 5, 4, "\xFF\xFF\xFF\x7F");
  EXPECT_THAT(Refused(huge), HasSubstr("ends inside token 259"));
  huge.replace(huge.size() - 5, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_THAT(Refused(huge), HasSubstr("token 259 has -1 bytes"));
  for (const float score :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(Refused(TokenizerBin({{"a", score}})), HasSubstr("no number as its score"));
  }
  EXPECT_EQ(Refused(TokenizerBin({{"\xFF", 0}})),
            "tokenizer.bin: token 259, \"\uFFFD\", is not UTF-8");
  EXPECT_EQ(Refused(TokenizerBin({{"ab", 0}, {"c", 0}, {"ab", 0}})),
            "tokenizer.bin: the piece \"ab\" appears twice, with ids 259 and 261");
  EXPECT_EQ(Refused(TokenizerBin({{"a", 0}, {"c", 0}, {"a", 0}})),
            "tokenizer.bin: the piece \"a\" appears twice, with ids 259 and 261")
      << "also where a byte token is alike";
  std::string other = good;
  other.replace(other.find("<0x41>"), 6, "<0x42>");
  EXPECT_EQ(Refused(other), "tokenizer.bin: token 68 is \"<0x42>\"; expected the byte 0x41");
}

}  // namespace
}  // namespace clearhead
