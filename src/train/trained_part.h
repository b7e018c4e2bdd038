// SPDX-License-Identifier: MIT
// Which parameters a run changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace clearhead {

struct TrainedPart {
  enum class Kind {
    kAll,
    kAttention,  // c_attn and attn.c_proj, weights and biases
    kQueryKey,   // the query and key columns of c_attn: what scores and gates are made of
    kLora,       // c_attn + a product of two thin matrices, and c_attn's bias (lora.h)
  };
  Kind kind = Kind::kAll;
  std::int64_t rank = 0;  // of kLora
};

// "all", "attention", "qk", "lora:8". Throws Error for anything else.
TrainedPart ParseTrainedPart(std::string_view text);
std::string ToText(const TrainedPart& part);
// Throws Error if the model cannot be trained that way: a rank beyond its width.
void CheckTrainedPart(const TrainedPart& part, const ModelConfig& config);

// Columns [from, to) of `rows` rows of `width` values, the first at `offset`.
struct FrozenColumns {
  std::int64_t offset, rows, width, from, to;
};
// Everything that is not in the part, as places in the block of all parameters. Made once: the
// parameters' names, which it goes by, are not for every step.
std::vector<FrozenColumns> FrozenPlaces(const ModelConfig& config, TrainedPart::Kind kind);

// Zeroes the gradients there. With no weight decay AdamW then leaves those parameters as they are.
void ClearFrozenGradients(const std::vector<FrozenColumns>& places, float* gradients);

}  // namespace clearhead
