// SPDX-License-Identifier: MIT
// A model over some of its tokens. A text uses a part of the vocabulary; without the rest a small
// model with a large vocabulary spends its time on its blocks. What it computes for the tokens that
// are left is the model's own, bit for bit; its softmax is over them alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model.h"

namespace clearhead {

struct VocabularyCut {
  std::vector<std::int32_t> kept;    // ids of the whole vocabulary, ascending
  std::vector<std::int32_t> places;  // [V]: where in `kept`, or -1
};

// To the tokens that occur. Refuses ids outside the vocabulary.
VocabularyCut CutToTokens(std::span<const std::int32_t> ids, std::int64_t vocabulary);

// The same text in the numbers of the cut vocabulary; every token must be kept.
std::vector<std::int32_t> CutIds(std::span<const std::int32_t> ids, const VocabularyCut& cut);

// With copies of the embedding's and the output's rows that are kept.
Model CutModel(const Model& whole, const VocabularyCut& cut);

// `trained`, made by CutModel and changed since, with the whole vocabulary again: tokens that were
// left out have the rows of `whole`.
Model UncutModel(const Model& trained, const Model& whole, const VocabularyCut& cut);

}  // namespace clearhead
