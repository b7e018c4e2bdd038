// SPDX-License-Identifier: MIT
#include "text/token_stream.h"

#include <algorithm>

#include "core/file.h"
#include "core/threads.h"
#include "text/token_file.h"

namespace clearhead {
namespace {

// Cuts ordinary text so that every segment has about `chunk_bytes` at most. Text without a safe
// place (no spaces) stays whole.
std::vector<TextSegment> CutSegments(const Tokenizer& tokenizer,
                                     std::span<const TextSegment> segments,
                                     std::size_t chunk_bytes) {
  std::vector<TextSegment> pieces;
  for (const TextSegment& segment : segments) {
    TextSegment rest = segment;
    for (std::size_t cut = chunk_bytes; !rest.token && cut < rest.text.size(); ++cut) {
      if (!tokenizer.MayCut(rest.text, cut)) continue;
      pieces.push_back(rest);
      pieces.back().text = rest.text.substr(0, cut);
      rest.text.remove_prefix(cut);
      rest.first = false;
      rest.continues = true;
      cut = chunk_bytes - 1;
    }
    pieces.push_back(rest);
  }
  return pieces;
}

}  // namespace

std::vector<std::int32_t> EncodeParallel(const Tokenizer& tokenizer, std::string_view text,
                                         SpecialTokens special, std::size_t chunk_bytes) {
  chunk_bytes = std::max<std::size_t>(chunk_bytes, 1);
  const std::vector<TextSegment> pieces =
      CutSegments(tokenizer, tokenizer.Split(text, special), chunk_bytes);

  // Short documents together, so that one batch is about one chunk.
  std::vector<std::span<const TextSegment>> batches;
  std::size_t first = 0;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].text.size();
    if (bytes >= chunk_bytes || i + 1 == pieces.size()) {
      batches.push_back(std::span(pieces).subspan(first, i + 1 - first));
      first = i + 1;
      bytes = 0;
    }
  }

  std::vector<std::vector<std::int32_t>> parts(batches.size());
  ParallelFor(static_cast<std::int64_t>(batches.size()),
              [&](std::int64_t i) { tokenizer.EncodeSegments(batches[i], special, &parts[i]); });
  std::size_t total = 0;
  for (const auto& part : parts) total += part.size();
  std::vector<std::int32_t> ids;
  ids.reserve(total);
  for (const auto& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

std::vector<std::int32_t> EncodeFile(const Tokenizer& tokenizer, const std::filesystem::path& path,
                                     SpecialTokens special) {
  const MappedFile file(path);
  const std::span<const std::byte> bytes = file.bytes();
  return EncodeParallel(tokenizer, {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                        special);
}

std::vector<std::int32_t> EncodeDocument(const Tokenizer& tokenizer,
                                         const std::filesystem::path& path) {
  return EncodeFiles(tokenizer, {&path, 1});
}

std::vector<std::int32_t> EncodeFiles(const Tokenizer& tokenizer,
                                      std::span<const std::filesystem::path> paths,
                                      SpecialTokens special) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (IsTokenFile(paths[i])) {
      const std::vector<std::int32_t> part = ReadTokenFile(paths[i], tokenizer.vocabulary_size());
      ids.insert(ids.end(), part.begin(), part.end());
      continue;
    }
    if (tokenizer.begin_of_text()) {
      ids.push_back(*tokenizer.begin_of_text());
    } else if (i > 0 && tokenizer.end_of_text()) {
      ids.push_back(*tokenizer.end_of_text());
    }
    const std::vector<std::int32_t> part = EncodeFile(tokenizer, paths[i], special);
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

}  // namespace clearhead
