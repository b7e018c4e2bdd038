// SPDX-License-Identifier: MIT
#include "use/generate.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "core/random.h"
#include "kernels/loss.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Numbers of the k largest, ascending: the draw must not depend on nth_element's order.
std::vector<std::int32_t> LargestTokens(std::span<const float> logits, std::int64_t k) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + (k - 1), order.end(),
                   [&](std::int32_t a, std::int32_t b) {
                     const float x = logits[static_cast<std::size_t>(a)];
                     const float y = logits[static_cast<std::size_t>(b)];
                     return x != y ? x > y : a < b;
                   });
  order.resize(static_cast<std::size_t>(k));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

std::int32_t SampleToken(std::span<const float> logits, const GenerateOptions& options,
                         double uniform) {
  if (options.temperature <= 0.0) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  }
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < logits.size()) {
    const std::vector<std::int32_t> kept = LargestTokens(logits, options.top_k);
    std::vector<float> largest;
    for (const std::int32_t token : kept) {
      largest.push_back(logits[static_cast<std::size_t>(token)]);
    }
    return kept[static_cast<std::size_t>(DrawFromSoftmax(largest, options.temperature, uniform))];
  }
  return static_cast<std::int32_t>(DrawFromSoftmax(logits, options.temperature, uniform));
}

Generation Generate(const Model& model, std::vector<std::int32_t> prompt,
                    const GenerateOptions& options,
                    const std::function<bool(std::int32_t)>& on_token) {
  const ModelConfig& config = model.config;
  const auto length = static_cast<std::int64_t>(prompt.size());
  CheckTokens(config, prompt, 1, length);

  const std::int64_t room = std::min(options.max_new, config.positions - length);
  Generation result{.ids = std::move(prompt)};
  if (room <= 0) return result;

  KeyValueCache cache(config, /*batch=*/1, length + room);
  Buffer<float> logits(config.vocabulary);
  const auto next = [&](const float* normalized_row) {
    const Pass last{.model = model, .batch = 1, .length = 1};
    LogitsForward(last, 1, normalized_row, logits.data());
    const double uniform =
        ToUniform(HashCoordinates(options.seed, {static_cast<std::uint64_t>(result.new_tokens)}));
    return SampleToken(logits.span(), options, uniform);
  };

  auto start = std::chrono::steady_clock::now();
  std::int32_t token = 0;
  {
    Activations activations(config, 1, length, Keep::kNothing, /*logit_rows=*/0);
    const Pass pass{.model = model,
                    .batch = 1,
                    .length = length,
                    .hooks = options.hooks,
                    .cache = &cache,
                    .gates = options.gates};
    ForwardToFinalNorm(pass, result.ids.data(), activations);
    token = next(activations.ln_f + (length - 1) * config.width);
  }
  result.prompt_seconds = SecondsSince(start);

  Activations step(config, 1, 1, Keep::kNothing, /*logit_rows=*/0);
  const Pass pass{.model = model,
                  .batch = 1,
                  .length = 1,
                  .hooks = options.hooks,
                  .cache = &cache,
                  .gates = options.gates};
  start = std::chrono::steady_clock::now();
  while (true) {
    result.ids.push_back(token);
    ++result.new_tokens;
    if (on_token && !on_token(token)) break;
    if (result.new_tokens == room) break;
    const auto& stops = options.stop_tokens;
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
    ForwardToFinalNorm(pass, &token, step);
    token = next(step.ln_f);
  }
  result.decode_seconds = SecondsSince(start);
  return result;
}

}  // namespace clearhead
