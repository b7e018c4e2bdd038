// SPDX-License-Identifier: MIT
#include "use/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/output.h"
#include "model/run.h"

namespace clearhead {

double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

std::vector<Prediction> Likeliest(std::span<const float> logits, std::int64_t count) {
  const double total = LogSumExp(logits);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const auto kept =
      static_cast<std::ptrdiff_t>(std::min(count, static_cast<std::int64_t>(logits.size())));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
                    });
  std::vector<Prediction> predictions;
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    const std::int32_t id = order[static_cast<std::size_t>(i)];
    predictions.push_back({id, std::exp(static_cast<double>(logit(id)) - total)});
  }
  return predictions;
}

PromptPrediction PredictNext(const Model& model, std::span<const std::int32_t> prompt,
                             std::int64_t count, const GateRun& gates) {
  const std::int64_t V = model.config.vocabulary, C = model.config.width;
  const auto length = static_cast<std::int64_t>(prompt.size());
  CheckTokens(model.config, prompt, 1, length);
  const Pass pass{.model = model, .batch = 1, .length = length, .gates = gates};
  Activations activations(model.config, 1, length, Keep::kNothing, 0);
  std::vector<float> logits(static_cast<std::size_t>(V));
  ForwardToFinalNorm(pass, prompt.data(), activations);
  LogitsForward(pass, 1, activations.ln_f + (length - 1) * C, logits.data());
  PromptPrediction result{.likeliest = Likeliest(logits, count)};
  if (pass.gated()) {
    result.open_edges = std::accumulate(activations.open_edges.begin(),
                                        activations.open_edges.end(), std::int64_t{0});
    result.causal_edges = activations.open_edges.size() * (length * (length + 1) / 2);
  }
  return result;
}

}  // namespace clearhead
