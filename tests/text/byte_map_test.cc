// SPDX-License-Identifier: MIT
#include "text/byte_map.h"

#include <gtest/gtest.h>

#include <set>

namespace clearhead {
namespace {

TEST(ByteMap, KnownSymbols) {
  EXPECT_EQ(BytesToSymbols(" the\n"), "Ġthe\u010A");
  EXPECT_EQ(BytesToSymbols(std::string(1, '\0')), "\u0100");
  EXPECT_EQ(BytesToSymbols("\x7F"), "\u0121");
  EXPECT_EQ(BytesToSymbols("\xA0"), "\u0142");
  EXPECT_EQ(BytesToSymbols("\xAD"), "\u0143");
  EXPECT_EQ(BytesToSymbols("é"), "Ã©");
}

TEST(ByteMap, EveryByteThereAndBack) {
  std::set<std::string> symbols;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    EXPECT_TRUE(symbols.insert(BytesToSymbols(bytes)).second) << byte;
    EXPECT_EQ(SymbolsToBytes(BytesToSymbols(bytes)), bytes) << byte;
  }
}

TEST(ByteMap, OrderIsGpt2s) {
  const auto& order = BytesInSymbolOrder();
  EXPECT_EQ(order[0], '!');
  EXPECT_EQ(order[93], '~');
  EXPECT_EQ(order[94], 0xA1);
  EXPECT_EQ(order[187], 0xFF);
  EXPECT_EQ(order[188], 0x00);
  EXPECT_EQ(order[220], ' ');
  EXPECT_EQ(order[255], 0xAD);
  EXPECT_EQ(std::set<unsigned char>(order.begin(), order.end()).size(), 256u);
}

TEST(ByteMap, RefusesWhatIsNotInTheAlphabet) {
  for (const char* text :
       {" ", "a b", "\n", "\u00A0", "\u00AD", "\u0144", "日", "🙂", "\xC4", "\xFF", "\xC0\xA1"}) {
    EXPECT_EQ(SymbolsToBytes(text), std::nullopt) << text;
  }
  EXPECT_EQ(SymbolsToBytes(""), "");
}

}  // namespace
}  // namespace clearhead
