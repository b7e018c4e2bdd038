// SPDX-License-Identifier: MIT
// Long texts as one sequence of tokens, for training and evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace clearhead {

inline constexpr std::size_t kStreamChunkBytes = 1 << 20;

// The same ids as tokenizer.Encode(text, special), by all threads: the text is cut into chunks of
// about `chunk_bytes` at places where the cut cannot change the tokens (Tokenizer::MayCut).
std::vector<std::int32_t> EncodeParallel(const Tokenizer& tokenizer, std::string_view text,
                                         SpecialTokens special = SpecialTokens::kRecognise,
                                         std::size_t chunk_bytes = kStreamChunkBytes);

// The ids of a whole file, which is mapped, not read into memory.
std::vector<std::int32_t> EncodeFile(const Tokenizer& tokenizer, const std::filesystem::path& path,
                                     SpecialTokens special = SpecialTokens::kRecognise);

// The same as a document: with begin-of-text in front where the tokenizer has it.
std::vector<std::int32_t> EncodeDocument(const Tokenizer& tokenizer,
                                         const std::filesystem::path& path);

// File after file, each its own document: begin-of-text in front of each where the tokenizer has
// it, else the end-of-text token between them, if there is one. Token files (token_file.h) are
// taken as they are.
std::vector<std::int32_t> EncodeFiles(const Tokenizer& tokenizer,
                                      std::span<const std::filesystem::path> paths,
                                      SpecialTokens special = SpecialTokens::kRecognise);

}  // namespace clearhead
