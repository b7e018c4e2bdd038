// SPDX-License-Identifier: MIT
// A model writes documents of its own, many at once: text to post-train it on without any data.
//
// All documents of a batch start with the same tokens and grow by one token in every pass over the
// cache; what is done leaves the batch. A product of many rows reads every weight once for all of
// them, where one document alone would read it for each of its tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "use/generate.h"

namespace clearhead {

struct WriteOptions {
  std::int64_t documents = 1;
  std::int64_t at_once = 64;
  std::vector<std::int32_t> start;        // of every document; not empty
  GenerateOptions generate = {};          // stop_tokens end a document and are not part of it
  std::int64_t first_document = 0;        // the number of the first one: pieces of a long run
  const PackedWeights* packed = nullptr;  // products in bf16 with these; null for fp32
};

struct WrittenDocument {
  std::int64_t number;
  std::vector<std::int32_t> ids;  // with its start
  bool finished;                  // false: max_new or the model's last position came first
};

// Calls `on_document` in the order of the numbers. A document depends on the seed and its number
// (and on rounding: on the number of threads and of documents at once, where two tokens are nearly
// equally likely to be drawn). `on_tokens` is told how many tokens were written; returning false
// stops, with the documents of the current batch lost.
void WriteDocuments(const Model& model, const WriteOptions& options,
                    const std::function<void(const WrittenDocument&)>& on_document,
                    const std::function<bool(std::int64_t)>& on_tokens = {});

}  // namespace clearhead
