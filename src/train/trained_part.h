// SPDX-License-Identifier: MIT
// Which parameters a run changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// Zeroes the gradients of everything that is not in the part. With no weight decay AdamW then
// leaves those parameters as they are.
void ClearFrozenGradients(const ModelConfig& config, TrainedPart::Kind kind,
                          ModelValues& gradients);

}  // namespace clearhead
