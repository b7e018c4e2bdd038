// SPDX-License-Identifier: MIT
#include "measure/decoding_speed.h"

#include "measure/bench_inputs.h"
#include "use/generate.h"

namespace clearhead {

DecodingSpeed TimeDecoding(const Model& model, std::int64_t tokens) {
  const ModelConfig& config = model.config;
  const Generation g = Generate(model, RandomTokens(config, 4), {.max_new = tokens + 1});
  const std::int64_t read = config.ParameterCount() - (config.positions - 1) * config.width;
  return {static_cast<double>(g.new_tokens - 1) / g.decode_seconds,
          static_cast<double>(read) * sizeof(float)};
}

}  // namespace clearhead
