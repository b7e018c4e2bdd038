// SPDX-License-Identifier: MIT
// Learns a byte-level BPE vocabulary from text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "text/tokenizer.h"

namespace clearhead {

struct BpeTraining {
  std::int32_t vocabulary_size = 0;  // 256 bytes, the merges and "<|endoftext|>": at least 257
  // A pair seen less often is not worth a token; the vocabulary then stays smaller.
  std::int64_t minimum_count = 2;
  // Called now and then with tokens so far and wanted; may be empty.
  std::function<void(std::int32_t done, std::int32_t wanted)> progress;
};

// Counts neighbouring pairs inside words (pretokenize.h), joins the most frequent, and so on. Ties
// go to the smallest (left id, right id): the result depends on nothing but the texts and the
// settings.
// "<|endoftext|>" separates documents and takes no part; it gets the last id. Ids 0..255 are the
// bytes in GPT-2's order. Throws Error if the vocabulary size is impossible.
Tokenizer TrainBpe(std::span<const std::string_view> texts, const BpeTraining& training);

}  // namespace clearhead
