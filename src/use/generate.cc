// SPDX-License-Identifier: MIT
#include "use/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/random.h"
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

// An index drawn with probability weight(i) / sum of weights. Sums are kept at the ends of chunks;
// the chunk where the draw falls is summed again.
template <typename WeightOf>
std::size_t DrawIndex(std::size_t count, double uniform, const WeightOf& weight) {
  constexpr std::size_t kChunk = 256;
  std::vector<double> sums;  // before each chunk
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % kChunk == 0) sums.push_back(sum);
    sum += weight(i);
  }
  const double wanted = uniform * sum;
  const auto chunk = std::upper_bound(sums.begin(), sums.end(), wanted) - sums.begin() - 1;
  std::size_t i = static_cast<std::size_t>(chunk) * kChunk;
  for (sum = sums[static_cast<std::size_t>(chunk)]; i + 1 < count; ++i) {
    sum += weight(i);
    if (sum > wanted) break;
  }
  return i;
}

}  // namespace

std::int32_t SampleToken(std::span<const float> logits, const GenerateOptions& options,
                         double uniform) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0.0) {
    return static_cast<std::int32_t>(std::find(logits.begin(), logits.end(), largest) -
                                     logits.begin());
  }
  const auto weight = [&](float logit) {
    return std::exp(static_cast<float>((logit - largest) / options.temperature));
  };
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < logits.size()) {
    const std::vector<std::int32_t> kept = LargestTokens(logits, options.top_k);
    return kept[DrawIndex(kept.size(), uniform, [&](std::size_t i) {
      return weight(logits[static_cast<std::size_t>(kept[i])]);
    })];
  }
  return static_cast<std::int32_t>(
      DrawIndex(logits.size(), uniform, [&](std::size_t i) { return weight(logits[i]); }));
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
