// SPDX-License-Identifier: MIT
#include "measure/bench_inputs.h"

#include "core/random.h"
#include "core/threads.h"

namespace clearhead {

ModelConfig Shape124M() {
  return {.layers = 12,
          .heads = 12,
          .width = 768,
          .vocabulary = 50257,
          .positions = 1024,
          .inner = 3072};
}

Buffer<float> RandomValues(std::int64_t count) {
  Buffer<float> values(count);
  ParallelRanges(count, [&](int, std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      values[i] = static_cast<float>(ToUniform(Mix64(static_cast<std::uint64_t>(i)))) - 0.5f;
    }
  });
  return values;
}

std::vector<std::int32_t> RandomTokens(const ModelConfig& config, std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(Mix64(i) % static_cast<std::uint64_t>(config.vocabulary));
  }
  return tokens;
}

}  // namespace clearhead
