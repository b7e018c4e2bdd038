// SPDX-License-Identifier: MIT
// GPT-2's alphabet: one printable character for each of the 256 bytes, so that tokens of any bytes
// can be written in vocab.json and merges.txt. Bytes 21..7E, A1..AC and AE..FF stand for themselves
// (as Latin-1 characters); the other 68, in order, are U+0100, U+0101, ... (a space is U+0120,
// "Ġ").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace clearhead {

// Code point of each byte's symbol.
const std::array<char32_t, 256>& ByteSymbols();

// The bytes in the order of their symbols' code points ('!' first): their ids in GPT-2's
// vocabulary.
const std::array<unsigned char, 256>& BytesInSymbolOrder();

// Bytes to symbols, as UTF-8.
std::string BytesToSymbols(std::string_view bytes);

// Symbols to bytes; nothing if a character is not in the alphabet or the UTF-8 is ill-formed.
std::optional<std::string> SymbolsToBytes(std::string_view symbols);

}  // namespace clearhead
