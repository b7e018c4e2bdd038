// SPDX-License-Identifier: MIT
// What a head's name is worth: the same score where there is nothing to find. A model of the same
// shape with random weights shows what the shape alone gives; the model on its own text in another
// order shows what has nothing to do with what the text says.
#pragma once

#include <cstdint>
#include <vector>

#include "heads/head_report.h"

namespace clearhead {

// Scores of a head's name (HeadName::score).
struct HeadControl {
  double shuffled = 0;                      // of the same head on the shuffled text
  double random_mean = 0, random_most = 0;  // over all heads of the random model
};

// How well the pattern that names `head` describes `other`, from 0 to 1; for the head itself its
// own score. A fixed offset counts where it is the same one.
double ScoreOfName(const HeadResult& head, const HeadResult& other);

// One for each head of `report`. The reports are of equal shape.
std::vector<HeadControl> ControlNames(const ModelReport& report, const ModelReport& shuffled,
                                      const ModelReport& random);

// Every sequence in an order drawn from the seed; its first token, which heads rest on, stays.
std::vector<std::vector<std::int32_t>> ShuffledSequences(
    const std::vector<AttentionSequence>& sequences, std::uint64_t seed);

}  // namespace clearhead
