// SPDX-License-Identifier: MIT
#include "use/gguf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "core/gguf.h"

namespace clearhead {
namespace {

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581 stands for a space

std::string WithSpaces(std::string_view piece) {
  std::string text(piece);
  for (std::size_t at = text.find(kSpaceMark); at != std::string::npos;
       at = text.find(kSpaceMark, at)) {
    text.replace(at, kSpaceMark.size(), " ");
  }
  return text;
}

// <unk>, <s>, </s>, then the 256 bytes.
bool BeginsWithBytes(const std::vector<std::string>& pieces) {
  if (pieces.size() < 259 || pieces[1] != "<s>" || pieces[2] != "</s>") return false;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (pieces[3 + byte] != fmt::format("<0x{:02X}>", byte)) return false;
  }
  return true;
}

void Append(std::string* bytes, const void* value, std::size_t size) {
  bytes->append(static_cast<const char*>(value), size);
}

}  // namespace

std::optional<std::string> TokenizerInside(const std::filesystem::path& path) {
  const MappedFile map(path);
  if (!IsGguf(map.bytes())) return {};
  const GgufFile file = GgufFile::FromBytes(map.bytes(), path.string());
  const auto pieces_at = file.values().find("tokenizer.ggml.tokens"),
             scores_at = file.values().find("tokenizer.ggml.scores");
  if (file.Text("tokenizer.ggml.model").value_or("") != "llama" ||
      pieces_at == file.values().end() || scores_at == file.values().end()) {
    return {};
  }
  const auto* pieces = std::get_if<std::vector<std::string>>(&pieces_at->second);
  const auto* scores = std::get_if<std::vector<double>>(&scores_at->second);
  if (pieces == nullptr || scores == nullptr || pieces->size() != scores->size()) {
    Fail("{}: its tokenizer's tokens and scores are not lists of one length", file.source());
  }
  if (!BeginsWithBytes(*pieces)) return {};
  std::string tokens;
  std::int32_t longest = 0;
  for (std::size_t i = 0; i < pieces->size(); ++i) {
    const std::string text = WithSpaces((*pieces)[i]);
    const auto score = static_cast<float>((*scores)[i]);
    const auto length = static_cast<std::int32_t>(text.size());
    longest = std::max(longest, length);
    Append(&tokens, &score, sizeof(score));
    Append(&tokens, &length, sizeof(length));
    tokens += text;
  }
  std::string bytes;
  Append(&bytes, &longest, sizeof(longest));
  return bytes + tokens;
}

}  // namespace clearhead
