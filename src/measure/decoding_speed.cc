// SPDX-License-Identifier: MIT
#include "measure/decoding_speed.h"

#include <chrono>

#include "measure/bench_inputs.h"
#include "use/generate.h"
#include "use/write.h"

namespace clearhead {

DecodingSpeed TimeDecoding(const Model& model, std::int64_t tokens) {
  const ModelConfig& config = model.config;
  const Generation g = Generate(model, RandomTokens(config, 4), {.max_new = tokens + 1});
  const std::int64_t read = config.ParameterCount() - (config.positions - 1) * config.width;
  return {static_cast<double>(g.new_tokens - 1) / g.decode_seconds,
          static_cast<double>(read) * sizeof(float)};
}

double WritingTokensPerSecond(const Model& model, std::int64_t documents, std::int64_t tokens) {
  WriteOptions options{
      .documents = documents, .at_once = documents, .start = RandomTokens(model.config, 1)};
  options.generate = {.max_new = tokens, .temperature = 1.0};
  std::int64_t written = 0;
  const auto begun = std::chrono::steady_clock::now();
  WriteDocuments(
      model, options, [](const WrittenDocument&) {},
      [&](std::int64_t count) {
        written += count;
        return true;
      });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  return static_cast<double>(written) / seconds.count();
}

}  // namespace clearhead
