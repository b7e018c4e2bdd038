// SPDX-License-Identifier: MIT
// Tokens as they are, where a text would not give them back: begin-of-text between documents is
// ordinary text to some tokenizers, and what a model wrote need not be what a tokenizer would make
// of it. A safetensors file with `ids`, I32, [tokens] or [sequences, length].
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace clearhead {

// By its name: *.safetensors.
bool IsTokenFile(const std::filesystem::path& path);

// Throws Error if there are no ids, or one is outside [0, vocabulary).
std::vector<std::int32_t> ReadTokenFile(const std::filesystem::path& path, std::int64_t vocabulary);

void WriteTokenFile(const std::filesystem::path& path, std::span<const std::int32_t> ids);

}  // namespace clearhead
