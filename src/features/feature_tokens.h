// SPDX-License-Identifier: MIT
// What a feature's weights alone say about tokens. Of feature f of layer l, with d = the sum of its
// decoder rows over all layers that it writes into and e = its encoder row:
//
//   promoted, suppressed   (d - mean(d)) * gain . W_U[token], less the mean over all tokens:
//                          what one unit of the feature adds to a logit by the direct path, up to
//                          the final norm's division. (The rows are summed because the stream sums
//                          them; RMS norms have no mean.)
//   exciting               e . x(token) + b_enc, with x what the MLP of layer l would read if the
//                          stream held the token's embedding alone
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "features/transcoder.h"

namespace clearhead {

inline constexpr int kListedTokens = 8;

struct TokenScore {
  std::int32_t token = 0;
  float score = 0.0f;
};
using TokenList = std::array<TokenScore, kListedTokens>;  // best first, by id among equals

struct FeatureTokens {
  TokenList promoted, suppressed, exciting;
};

// Of features [first, first + count) of a layer. Memory: two blocks of scores of bounded size and
// one copy of the embeddings' rows at a time. Vocabularies below kListedTokens are refused.
// `tokens` limits the ids to those that the tokenizer has; 0: all.
std::vector<FeatureTokens> TokensOfFeatures(const Model& model, const Transcoder& transcoder,
                                            std::int64_t layer, std::int64_t first,
                                            std::int64_t count, std::int64_t tokens = 0);

}  // namespace clearhead
