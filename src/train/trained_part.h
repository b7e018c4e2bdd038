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
    kAttention,  // what makes queries, keys, values and the heads' output
    kQueryKey,   // what makes queries and keys: scores and gates are made of them
    kLora,       // projections to queries, keys, values + thin products, and biases (lora.h)
  };
  Kind kind = Kind::kAll;
  std::int64_t rank = 0;  // of kLora
};

// "all", "attention", "qk", "lora:8". Throws Error for anything else.
TrainedPart ParseTrainedPart(std::string_view text);
std::string ToText(const TrainedPart& part);
// Throws Error if the model cannot be trained that way: a rank beyond its width.
void CheckTrainedPart(const TrainedPart& part, const ModelConfig& config);

// Whether a parameter belongs to the part, whole or in some of its columns. Of kLora: the matrices
// that its products are added to.
bool IsTrained(TrainedPart::Kind kind, Role role);

// Scores are made of what these make; so are gates. One matrix may make values too.
bool MakesQueriesOrKeys(Role role);

// Zeroes the gradients of the values that share a tensor with trained ones: the value columns of a
// matrix for query | key | value in kQueryKey. With no weight decay AdamW then leaves them as they
// are.
void ClearFrozenColumns(const ModelConfig& config, TrainedPart::Kind kind, ModelValues& gradients);

}  // namespace clearhead
