// SPDX-License-Identifier: MIT
#include "use/compare.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/loss.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

struct Side {
  const Pass& pass;
  Activations& activations;
};

// Both models have run up to their final norm: fills both losses [R] and adds agreement and
// divergence, in pieces of logits that fit beside each other.
void CompareLogits(const Side& a, const Side& b, const std::int32_t* targets,
                   std::vector<float>& divergences, Comparison* result, double* divergence_sum) {
  const std::int64_t R = a.pass.rows(), V = a.pass.config().vocabulary;
  const std::int64_t step = std::min(a.activations.logit_rows, b.activations.logit_rows);
  const auto first_choice = [V](const float* row) { return std::max_element(row, row + V) - row; };
  std::vector<char> same(static_cast<std::size_t>(step));
  divergences.resize(static_cast<std::size_t>(step));
  const auto logits = [](const Side& side, std::int64_t at, std::int64_t rows) {
    LogitsForward(side.pass, rows, side.activations.ln_f + at * side.pass.config().width,
                  side.activations.logits);
  };
  for (std::int64_t at = 0; at < R; at += step) {
    const std::int64_t rows = std::min(step, R - at);
    logits(a, at, rows);
    logits(b, at, rows);
    ParallelFor(rows, [&](std::int64_t r) {
      same[static_cast<std::size_t>(r)] =
          first_choice(a.activations.logits + r * V) == first_choice(b.activations.logits + r * V);
    });
    result->same_prediction += std::count(same.begin(), same.begin() + rows, 1);
    // Its gradient is not wanted: scale 0.
    DistilledCrossEntropy({.rows = rows,
                           .vocabulary = V,
                           .targets = targets + at,
                           .teacher_logits = a.activations.logits,
                           .distill = 0.0f,
                           .gradient_scale = 0.0f},
                          b.activations.logits,
                          {.loss = b.activations.losses + at,
                           .teacher_loss = a.activations.losses + at,
                           .divergence = divergences.data()});
    for (std::int64_t r = 0; r < rows; ++r) {
      *divergence_sum += divergences[static_cast<std::size_t>(r)];
    }
  }
}

WeightedMean PairedDifference(const Comparison& comparison, const WindowPlan& plan) {
  std::vector<double> differences, weights;
  for (const WindowGroup& group : plan.groups) {
    weights.insert(weights.end(), static_cast<std::size_t>(group.windows),
                   static_cast<double>(group.length));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    differences.push_back(comparison.b.window_losses[i] - comparison.a.window_losses[i]);
  }
  return MeanWithInterval(differences, weights);
}

}  // namespace

Comparison Compare(const Model& a, const Model& b, std::span<const std::int32_t> tokens,
                   const EvaluateOptions& options) {
  if (a.config.vocabulary != b.config.vocabulary) {
    Fail(
        "the models have vocabularies of {} and {} tokens; only models of one vocabulary can be "
        "compared",
        a.config.vocabulary, b.config.vocabulary);
  }
  const WindowPlan plan =
      PlanWindows(a.config.positions < b.config.positions ? a.config : b.config, tokens, options);
  GateRun gates = options.gates;
  gates.sum_probabilities = false;
  const auto start = std::chrono::steady_clock::now();
  Comparison result;
  result.a.context = result.b.context = plan.context;
  double divergence_sum = 0.0;
  std::vector<float> divergences;
  std::optional<Activations> activations_a, activations_b;
  for (const WindowGroup& group : plan.groups) {
    if (!activations_a || activations_a->batch != group.windows ||
        activations_a->length != group.length) {
      activations_a.emplace(ActivationsFor(a.config, group));
      activations_b.emplace(ActivationsFor(b.config, group));
    }
    const Pass pass_a = PassOver(a, group, gates);
    const Pass pass_b = PassOver(b, group, gates);
    ForwardToFinalNorm(pass_a, tokens.data() + group.first, *activations_a);
    ForwardToFinalNorm(pass_b, tokens.data() + group.first, *activations_b);
    CompareLogits({pass_a, *activations_a}, {pass_b, *activations_b},
                  tokens.data() + group.first + 1, divergences, &result, &divergence_sum);
    AddWindows(pass_a, *activations_a, &result.a);
    AddWindows(pass_b, *activations_b, &result.b);
    if (options.progress) options.progress(result.a.tokens, plan.predictions);
  }
  result.divergence = divergence_sum / static_cast<double>(result.a.tokens);
  result.difference = PairedDifference(result, plan);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace clearhead
