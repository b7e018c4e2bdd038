#include "model/evaluate.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "model/head.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Adds the gate statistics of one pass.
void AddGates(const Pass& pass, const Activations& activations, Evaluation* result) {
  const std::int64_t H = pass.config().heads, B = pass.batch;
  result->open_edges.resize(static_cast<std::size_t>(pass.config().layers * H));
  result->gate_probability.resize(result->open_edges.size());
  for (std::int64_t layer = 0; layer < pass.config().layers; ++layer) {
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t from = (layer * B + b) * H + h;
        const auto to = static_cast<std::size_t>(layer * H + h);
        result->open_edges[to] += activations.open_edges[from];
        result->gate_probability[to] += activations.gate_probability_sum[from];
      }
    }
  }
}

}  // namespace

Evaluation Evaluate(const Gpt2& model, std::span<const std::int32_t> tokens,
                    const EvaluateOptions& options) {
  const Gpt2Config& config = model.config;
  Evaluation result;
  result.context = options.context > 0 ? options.context : config.positions;
  if (result.context > config.positions) {
    Fail("a context of {} was asked for, but the model has {} positions", result.context,
         config.positions);
  }
  if (tokens.size() < 2) {
    Fail("the text is {} tokens long; at least 2 are needed to predict one", tokens.size());
  }
  std::int64_t predictions = static_cast<std::int64_t>(tokens.size()) - 1;
  if (options.max_tokens > 0) predictions = std::min(predictions, options.max_tokens);
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= config.vocabulary) {
      Fail("token id {} of the text is outside the model's vocabulary of {}", id,
           config.vocabulary);
    }
  }

  const auto start = std::chrono::steady_clock::now();
  double sum = 0.0;
  // Full windows go several at a time, then the rest by itself.
  const auto run = [&](std::int64_t first, std::int64_t batch, std::int64_t length,
                       Activations& activations) {
    const Pass pass{.model = model, .batch = batch, .length = length, .gates = options.gates};
    ForwardToFinalNorm(pass, tokens.data() + first, activations);
    LossForward(pass, tokens.data() + first + 1, activations);
    for (std::int64_t b = 0; b < batch; ++b) {
      double window = 0.0;
      for (std::int64_t t = 0; t < length; ++t) window += activations.losses[b * length + t];
      sum += window;
      result.window_losses.push_back(window / static_cast<double>(length));
    }
    if (pass.gated()) AddGates(pass, activations, &result);
    result.causal_edges += batch * (length * (length + 1) / 2);
    result.windows += batch;
    result.tokens += batch * length;
    if (options.progress) options.progress(result.tokens, predictions);
  };
  const std::int64_t T = std::min(result.context, predictions);
  const std::int64_t full = predictions / T;
  const std::int64_t batch = std::clamp<std::int64_t>(options.batch_tokens / T, 1, full);
  const auto logit_rows = [](std::int64_t rows) { return std::min<std::int64_t>(rows, 512); };
  {
    Activations activations(config, batch, T, Keep::kNothing, logit_rows(batch * T));
    std::int64_t window = 0;
    for (; window + batch <= full; window += batch) run(window * T, batch, T, activations);
    if (window < full) {
      Activations fewer(config, full - window, T, Keep::kNothing, logit_rows((full - window) * T));
      run(window * T, full - window, T, fewer);
    }
  }
  if (const std::int64_t rest = predictions - full * T; rest > 0) {
    Activations activations(config, 1, rest, Keep::kNothing, logit_rows(rest));
    run(full * T, 1, rest, activations);
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace clearhead
