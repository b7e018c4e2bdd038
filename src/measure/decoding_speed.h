// SPDX-License-Identifier: MIT
// Greedy decoding, one token at a time.
#pragma once

#include "model/model.h"

namespace clearhead {

struct DecodingSpeed {
  double tokens_per_second;
  double bytes_per_token;  // weights that every token reads: all but the unused positions
};

// `tokens` after the first, which belongs to the prompt.
DecodingSpeed TimeDecoding(const Model& model, std::int64_t tokens);

}  // namespace clearhead
