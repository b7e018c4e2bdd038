// SPDX-License-Identifier: MIT
// Small vocabularies of characters: llama2.c's tokenizer.bin, and tokenizer.json as Llama 2 has it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace clearhead {

struct ScoredPiece {
  std::string text;
  float score;
};

inline void AppendBinToken(std::string* file, std::string_view bytes, float score) {
  const auto length = static_cast<std::int32_t>(bytes.size());
  file->append(reinterpret_cast<const char*>(&score), sizeof score);
  file->append(reinterpret_cast<const char*>(&length), sizeof length);
  file->append(bytes);
}

// tokenizer.bin of unknown, begin, end, the bytes and `pieces`, whose ids start at 259.
inline std::string TokenizerBin(const std::vector<ScoredPiece>& pieces, std::int32_t longest = 64) {
  std::string file(reinterpret_cast<const char*>(&longest), sizeof longest);
  for (const char* name : {"<unk>", "\n<s>\n", "\n</s>\n"}) AppendBinToken(&file, name, 0);
  for (int byte = 0; byte < 256; ++byte) AppendBinToken(&file, fmt::format("<0x{:02X}>", byte), 0);
  for (const ScoredPiece& piece : pieces) AppendBinToken(&file, piece.text, piece.score);
  return file;
}

// tokenizer.json of the same ids with merges as "a b"; U+2581 stands for a space.
inline Json CharacterTokenizerJson(const std::vector<std::string>& pieces,
                                   const std::vector<std::string>& merges) {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = 3 + byte;
  for (const std::string& piece : pieces) vocab[piece] = vocab.size();
  const auto special = [](int id, const char* content) {
    return Json{{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
  };
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const Json back = {{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}};
  return {{"added_tokens", {special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace}}}},
          {"pre_tokenizer", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {back,
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", merges}}}};
}

inline Json Metaspace(const char* scheme, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", "\u2581"},
          {"prepend_scheme", scheme},
          {"split", split}};
}

}  // namespace clearhead
