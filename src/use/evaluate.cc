// SPDX-License-Identifier: MIT
#include "use/evaluate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

// Adds the gate statistics of one pass.
void AddGates(const Pass& pass, const Activations& activations, Evaluation* result) {
  const std::int64_t H = pass.config().heads, B = pass.batch;
  result->open_edges.resize(static_cast<std::size_t>(pass.config().layers * H));
  const bool sums = pass.gates.sum_probabilities;
  if (sums) result->gate_probability.resize(result->open_edges.size());
  for (std::int64_t layer = 0; layer < pass.config().layers; ++layer) {
    for (std::int64_t b = 0; b < B; ++b) {
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t from = (layer * B + b) * H + h;
        const auto to = static_cast<std::size_t>(layer * H + h);
        result->open_edges[to] += activations.open_edges[from];
        if (sums) result->gate_probability[to] += activations.gate_probability_sum[from];
      }
    }
  }
}

// The loss of each window of a pass, summed over its tokens.
void SumWindows(const Pass& pass, const Activations& activations, double* sums) {
  for (std::int64_t b = 0; b < pass.batch; ++b) {
    sums[b] = 0.0;
    for (std::int64_t t = 0; t < pass.length; ++t) {
      sums[b] += activations.losses[b * pass.length + t];
    }
  }
}

// Adds the windows of a group whose losses have these sums.
void AddSums(std::int64_t length, std::span<const double> sums, Evaluation* result) {
  const auto windows = static_cast<std::int64_t>(sums.size());
  double sum = result->loss * static_cast<double>(result->tokens);
  for (const double window : sums) {
    sum += window;
    result->window_losses.push_back(window / static_cast<double>(length));
  }
  result->causal_edges += windows * (length * (length + 1) / 2);
  result->windows += windows;
  result->tokens += windows * length;
  result->loss = sum / static_cast<double>(result->tokens);
}

// What this rank alone counted becomes what all did. Counts are exact in fp64 up to 2^53.
void SumGates(Communicator& ranks, const ModelConfig& config, bool probabilities,
              Evaluation* result) {
  result->open_edges.resize(static_cast<std::size_t>(config.layers * config.heads));
  std::vector<double> open(result->open_edges.begin(), result->open_edges.end());
  ranks.Sum(open);
  std::copy(open.begin(), open.end(), result->open_edges.begin());
  if (!probabilities) return;
  result->gate_probability.resize(result->open_edges.size());
  ranks.Sum(result->gate_probability);
}

}  // namespace

WindowPlan PlanWindows(const ModelConfig& config, std::span<const std::int32_t> tokens,
                       const EvaluateOptions& options) {
  WindowPlan plan;
  plan.context = options.context > 0 ? options.context : config.positions;
  if (plan.context > config.positions) {
    Fail("a context of {} was asked for, but the model has {} positions", plan.context,
         config.positions);
  }
  if (tokens.size() < 2) {
    Fail("the text is {} tokens long; at least 2 are needed to predict one", tokens.size());
  }
  for (const std::int32_t id : tokens) {
    if (id < 0 || id >= config.vocabulary) {
      Fail("token id {} of the text is outside the model's vocabulary of {}", id,
           config.vocabulary);
    }
  }
  plan.predictions = static_cast<std::int64_t>(tokens.size()) - 1;
  if (options.max_tokens > 0) plan.predictions = std::min(plan.predictions, options.max_tokens);
  const std::int64_t T = std::min(plan.context, plan.predictions);
  const std::int64_t full = plan.predictions / T;
  const std::int64_t batch = std::clamp<std::int64_t>(options.batch_tokens / T, 1, full);
  for (std::int64_t window = 0; window < full; window += batch) {
    plan.groups.push_back({window, window * T, std::min(batch, full - window), T});
  }
  if (const std::int64_t rest = plan.predictions - full * T; rest > 0) {
    plan.groups.push_back({full, full * T, 1, rest});
  }
  return plan;
}

Activations ActivationsFor(const ModelConfig& config, const WindowGroup& group) {
  const std::int64_t rows = group.windows * group.length;
  return Activations(config, group.windows, group.length, Keep::kNothing,
                     std::min<std::int64_t>(rows, 512));
}

Pass PassOver(const Model& model, const WindowGroup& group, const GateRun& gates) {
  Pass pass{.model = model, .batch = group.windows, .length = group.length, .gates = gates};
  pass.gates.noise.first_sample += static_cast<std::uint64_t>(group.first_window);
  return pass;
}

void AddWindows(const Pass& pass, const Activations& activations, Evaluation* result) {
  std::vector<double> sums(static_cast<std::size_t>(pass.batch));
  SumWindows(pass, activations, sums.data());
  AddSums(pass.length, sums, result);
  if (pass.gated()) AddGates(pass, activations, result);
}

WindowLosses::WindowLosses(const Model& model, std::span<const std::int32_t> tokens,
                           const WindowPlan& plan, const EvaluateOptions& options)
    : model_(model),
      tokens_(tokens),
      plan_(plan),
      options_(options),
      ranks_(options.ranks == nullptr ? alone_ : *options.ranks),
      gated_(model.config.attention == AttentionKind::kGated && !options.gates.open),
      sums_(
          static_cast<std::size_t>(plan.groups.back().first_window + plan.groups.back().windows)) {}

void WindowLosses::Run(std::size_t group, Hooks* hooks) {
  const WindowGroup& windows = plan_.groups[group];
  if (!activations_ || activations_->batch != windows.windows ||
      activations_->length != windows.length) {
    activations_.emplace(ActivationsFor(model_.config, windows));
  }
  Pass pass = PassOver(model_, windows, options_.gates);
  pass.hooks = hooks;
  ForwardToFinalNorm(pass, tokens_.data() + windows.first, *activations_);
  LossForward(pass, tokens_.data() + windows.first + 1, *activations_);
  SumWindows(pass, *activations_, sums_.data() + windows.first_window);
  if (gated_) AddGates(pass, *activations_, &result_);
  // As far as the text is done by all, who go at the same pace.
  if (options_.progress) options_.progress(windows.first + pass.rows(), plan_.predictions);
}

void WindowLosses::RunOwn(Hooks* hooks) {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    if (ranks_.Owns(g)) Run(g, hooks);
  }
}

Evaluation WindowLosses::Finish() {
  ranks_.Sum(sums_);
  result_.context = plan_.context;
  for (const WindowGroup& group : plan_.groups) {
    AddSums(group.length,
            std::span(sums_).subspan(static_cast<std::size_t>(group.first_window),
                                     static_cast<std::size_t>(group.windows)),
            &result_);
  }
  if (gated_) SumGates(ranks_, model_.config, options_.gates.sum_probabilities, &result_);
  std::fill(sums_.begin(), sums_.end(), 0.0);
  return std::exchange(result_, {});
}

Evaluation Evaluate(const Model& model, std::span<const std::int32_t> tokens,
                    const EvaluateOptions& options) {
  const WindowPlan plan = PlanWindows(model.config, tokens, options);
  const auto start = std::chrono::steady_clock::now();
  WindowLosses losses(model, tokens, plan, options);
  losses.RunOwn();
  Evaluation result = losses.Finish();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

EdgeTotals TotalEdges(const Evaluation& evaluation) {
  EdgeTotals totals;
  const auto heads = static_cast<std::int64_t>(evaluation.open_edges.size());
  for (const std::int64_t edges : evaluation.open_edges) totals.open += edges;
  totals.causal = evaluation.causal_edges * heads;
  if (heads == 0) return totals;
  totals.fraction = static_cast<double>(totals.open) / static_cast<double>(totals.causal);
  totals.per_query =
      static_cast<double>(totals.open) / static_cast<double>(evaluation.tokens * heads);
  return totals;
}

}  // namespace clearhead
