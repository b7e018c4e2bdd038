// SPDX-License-Identifier: MIT
// Text generation one token at a time, with cached keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "model/pass.h"

namespace clearhead {

struct GenerateOptions {
  std::int64_t max_new = 64;
  double temperature = 0.0;  // 0: always the most likely token
  std::int64_t top_k = 0;    // 0: all tokens may be drawn
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_tokens = {};  // each ends the text; it is part of the result
  GateRun gates = {};
  Hooks* hooks = nullptr;  // of the prompt's pass and of every token's after it
};

struct Generation {
  std::vector<std::int32_t> ids;  // prompt and continuation
  std::int64_t new_tokens = 0;
  double prompt_seconds = 0.0;  // until the first new token is known
  double decode_seconds = 0.0;  // for the others
};

// Extends the prompt until max_new tokens, a stop token or the model's last position. `on_token`
// sees every new token as it comes; returning false stops.
Generation Generate(const Model& model, std::vector<std::int32_t> prompt,
                    const GenerateOptions& options,
                    const std::function<bool(std::int32_t)>& on_token = {});

// Draws from softmax(logits / temperature) over the top_k largest; the largest at temperature 0
// (the first of equals).
std::int32_t SampleToken(std::span<const float> logits, const GenerateOptions& options,
                         double uniform);

}  // namespace clearhead
