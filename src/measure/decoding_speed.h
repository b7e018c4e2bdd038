// SPDX-License-Identifier: MIT
// Decoding: one token at a time, or of many documents at once.
#pragma once

#include "model/model.h"

namespace clearhead {

struct DecodingSpeed {
  double tokens_per_second;
  double bytes_per_token;  // weights that every token reads: all but the unused positions
};

// `tokens` after the first, which belongs to the prompt.
DecodingSpeed TimeDecoding(const Model& model, std::int64_t tokens);

// Documents written at once, `tokens` of each, as `clearhead write` does: tokens per second of all.
double WritingTokensPerSecond(const Model& model, std::int64_t documents, std::int64_t tokens);

}  // namespace clearhead
