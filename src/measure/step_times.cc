// SPDX-License-Identifier: MIT
#include "measure/step_times.h"

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "measure/best_seconds.h"
#include "model/run.h"
#include "train/sparsify_step.h"

namespace clearhead {
namespace {

std::vector<std::int32_t> RandomTokens(const ModelConfig& config) {
  std::vector<std::int32_t> tokens(8192);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(Mix64(i) % static_cast<std::uint64_t>(config.vocabulary));
  }
  return tokens;
}

constexpr double kRate = 1e-4;

// Dense and gated steps over the same buffers: with open gates the gated model is the dense one.
Turns DenseAndGatedSeconds(Optimizer& optimizer, const StepShape& shape, Batches& batches,
                           double budget) {
  const std::int64_t rows = shape.batch * shape.context;
  Activations activations(optimizer.model().config, shape.batch, shape.context, Keep::kAll,
                          LogitRows(rows));
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(rows)), targets(inputs.size());
  PackedWeights packed;
  PackedBf16 scratch;
  std::int64_t sample = 0;
  const auto step = [&](const GateRun& gates) {
    if (shape.bf16) packed.Pack(optimizer.model());
    batches.Fill(sample, shape.batch, inputs.data(), targets.data());
    const Pass pass{.model = optimizer.model(),
                    .batch = shape.batch,
                    .length = shape.context,
                    .gates = gates,
                    .packed = shape.bf16 ? &packed : nullptr};
    ForwardBackward(pass, inputs.data(), targets.data(), 1.0f, activations, &optimizer.gradients(),
                    &scratch);
    optimizer.Step(kRate, optimizer.GradientNorm());
    sample += shape.batch;
  };
  return BestSecondsInTurns(
      budget, [&] { step({.open = true}); },
      [&] { step({.mode = GateMode::kSampled, .penalty_weight = 0.1f}); });
}

}  // namespace

StepRates TimeSteps(const Model& model, const StepShape& shape, double budget) {
  Model gated = model;
  gated.config.attention = AttentionKind::kGated;
  gated.config.gate_bias = 2.0f;  // as sparsify starts
  const std::vector<std::int32_t> tokens = RandomTokens(model.config);
  Batches batches(tokens, shape.context, 0);
  Optimizer optimizer(gated, {});
  const Turns turns = DenseAndGatedSeconds(optimizer, shape, batches, budget);
  SparsifyStep sparsify(gated.config, {.shape = shape});
  std::int64_t number = 0;
  const double with_teacher = BestSeconds(0.5 * budget, [&] {
    const SparsifyStepResult r = sparsify.Gradients(optimizer, model, batches, number++, 0.1);
    optimizer.Step(kRate, r.gradient_norm);
  });
  const double count = static_cast<double>(shape.batch * shape.context);
  return {count / turns.first, count / turns.second, count / with_teacher};
}

double TrainTokensPerSecond(const Model& model, const StepShape& shape, double budget) {
  const std::vector<std::int32_t> tokens = RandomTokens(model.config);
  Batches batches(tokens, shape.context, 0);
  Optimizer optimizer(model, {});
  TrainStep step(model.config, shape);
  std::int64_t sample = 0;
  const double seconds = BestSeconds(budget, [&] {
    const StepResult r = step.Gradients(optimizer, batches, sample);
    optimizer.Step(kRate, r.gradient_norm);
    sample += shape.batch;
  });
  return static_cast<double>(shape.batch * shape.context) / seconds;
}

}  // namespace clearhead
