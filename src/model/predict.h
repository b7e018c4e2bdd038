// What a model expects after a prompt.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/pass.h"

namespace clearhead {

struct Prediction {
  std::int32_t token = 0;
  double probability = 0.0;
};

// The `count` likeliest next tokens, likeliest first (equal ones by id).
std::vector<Prediction> PredictNext(const Gpt2& model, std::span<const std::int32_t> prompt,
                                    std::int64_t count, const GateRun& gates = {});

}  // namespace clearhead
