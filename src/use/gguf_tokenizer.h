// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace clearhead {

// The tokenizer inside a GGUF file as llama2.c's tokenizer.bin. None where the file has none, is no
// GGUF file, or has another kind than SentencePiece's with Llama 2's first 259 tokens: such a model
// wants its tokenizer.json beside it.
std::optional<std::string> TokenizerInside(const std::filesystem::path& file);

}  // namespace clearhead
