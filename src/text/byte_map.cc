// SPDX-License-Identifier: MIT
#include "text/byte_map.h"

namespace clearhead {
namespace {

// The last of the 68 replacements is U+0143: every symbol is one or two bytes of UTF-8.
constexpr char32_t kSymbolEnd = 0x144;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> MakeSymbols() {
  std::array<char32_t, 256> symbols{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    symbols[byte] = StandsForItself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return symbols;
}

constexpr std::array<char32_t, 256> kSymbols = MakeSymbols();

// Code point to byte; -1 outside the alphabet.
constexpr std::array<std::int16_t, kSymbolEnd> MakeInverse() {
  std::array<std::int16_t, kSymbolEnd> inverse{};
  for (std::int16_t& entry : inverse) entry = -1;
  for (int byte = 0; byte < 256; ++byte) inverse[kSymbols[byte]] = static_cast<std::int16_t>(byte);
  return inverse;
}

constexpr std::array<std::int16_t, kSymbolEnd> kInverse = MakeInverse();

constexpr std::array<unsigned char, 256> MakeOrder() {
  std::array<unsigned char, 256> order{};
  int next = 0;
  for (const std::int16_t byte : kInverse) {
    if (byte >= 0) order[next++] = static_cast<unsigned char>(byte);
  }
  return order;
}

constexpr std::array<unsigned char, 256> kOrder = MakeOrder();

}  // namespace

const std::array<char32_t, 256>& ByteSymbols() { return kSymbols; }

const std::array<unsigned char, 256>& BytesInSymbolOrder() { return kOrder; }

std::string BytesToSymbols(std::string_view bytes) {
  std::string symbols;
  symbols.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const char32_t symbol = kSymbols[static_cast<unsigned char>(c)];
    if (symbol < 0x80) {
      symbols += static_cast<char>(symbol);
    } else {
      symbols += static_cast<char>(0xC0 | (symbol >> 6));
      symbols += static_cast<char>(0x80 | (symbol & 0x3F));
    }
  }
  return symbols;
}

std::optional<std::string> SymbolsToBytes(std::string_view symbols) {
  std::string bytes;
  bytes.reserve(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    char32_t symbol = static_cast<unsigned char>(symbols[i]);
    if (symbol >= 0x80) {
      // Two-byte characters C2 80..C5 83 hold all of the alphabet beyond ASCII.
      if (symbol < 0xC2 || symbol > 0xC5 || i + 1 == symbols.size()) return std::nullopt;
      const auto second = static_cast<unsigned char>(symbols[++i]);
      if ((second & 0xC0) != 0x80) return std::nullopt;
      symbol = ((symbol & 0x1F) << 6) | (second & 0x3F);
      if (symbol >= kSymbolEnd) return std::nullopt;
    }
    if (kInverse[symbol] < 0) return std::nullopt;
    bytes += static_cast<char>(kInverse[symbol]);
  }
  return bytes;
}

}  // namespace clearhead
