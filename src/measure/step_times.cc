// SPDX-License-Identifier: MIT
#include "measure/step_times.h"

#include <algorithm>

#include "measure/bench_inputs.h"
#include "model/run.h"

namespace clearhead {
namespace {

constexpr double kRate = 1e-4;
constexpr std::int64_t kTokens = 8192;

Model GatedTwin(const Model& model) {
  Model gated = model;
  gated.config.attention = AttentionKind::kGated;
  gated.config.gate_bias = 2.0f;  // as sparsify starts
  return gated;
}

double TokensOf(const StepShape& shape) { return static_cast<double>(shape.batch * shape.context); }

}  // namespace

TrainingWork::TrainingWork(const Model& model, const StepShape& shape)
    : tokens_(RandomTokens(model.config, kTokens)),
      batches_(tokens_, shape.context, 0),
      optimizer_(model, {}),
      step_(model.config, shape),
      batch_(shape.batch) {}

void TrainingWork::Run() {
  const StepResult result = step_.Gradients(optimizer_, batches_, sample_);
  optimizer_.Step(kRate, result.gradient_norm);
  sample_ += batch_;
}

PostTrainingWork::PostTrainingWork(const Model& model, const StepShape& shape)
    : dense_(model),
      shape_(shape),
      tokens_(RandomTokens(model.config, kTokens)),
      batches_(tokens_, shape.context, 0),
      optimizer_(GatedTwin(model), {}),
      activations_(optimizer_.model().config, shape.batch, shape.context, Keep::kAll,
                   LogitRows(shape.batch * shape.context)),
      inputs_(static_cast<std::size_t>(shape.batch * shape.context)),
      targets_(inputs_.size()) {}

void PostTrainingWork::Step(const GateRun& gates) {
  const std::optional<PackedFor> packing = PackedInTraining(optimizer_.model().config, shape_.bf16);
  if (packing) packed_.Pack(optimizer_.model(), *packing, PackedWays::kBoth);
  batches_.Fill(sample_, shape_.batch, inputs_.data(), targets_.data());
  const Pass pass{.model = optimizer_.model(),
                  .batch = shape_.batch,
                  .length = shape_.context,
                  .gates = gates,
                  .packed = packing ? &packed_ : nullptr};
  ForwardBackward(pass, inputs_.data(), targets_.data(), 1.0f, activations_,
                  &optimizer_.gradients(), &scratch_);
  optimizer_.Step(kRate, optimizer_.GradientNorm());
  sample_ += shape_.batch;
}

void PostTrainingWork::Dense() { Step({.open = true}); }

void PostTrainingWork::Gated() {
  Step({.mode = GateMode::kSampled,
        .noise = {.step = static_cast<std::uint64_t>(sample_)},
        .penalty_weight = 0.1f});
}

void PostTrainingWork::WithTeacher() {
  if (!sparsify_) {
    sparsify_ = std::make_unique<SparsifyStep>(optimizer_.model().config,
                                               SparsifyStepOptions{.shape = shape_});
  }
  const SparsifyStepResult result =
      sparsify_->Gradients(optimizer_, dense_, batches_, number_++, 0.1);
  optimizer_.Step(kRate, result.gradient_norm);
}

double TrainTokensPerSecond(const Model& model, const StepShape& shape, const Budget& budget) {
  TrainingWork work(model, shape);
  return TokensOf(shape) / BestSeconds(budget, [&] { work.Run(); });
}

StepRates TimeSteps(const Model& model, const StepShape& shape, const Budget& budget, bool gated) {
  PostTrainingWork work(model, shape);
  const double tokens = TokensOf(shape);
  const Turns turns = BestSecondsInTurns(
      budget, [&] { work.Dense(); }, [&] { work.WithTeacher(); });
  StepRates rates{tokens / turns.first, tokens / turns.second, {}};
  if (gated) {
    const Turns again = BestSecondsInTurns(
        budget, [&] { work.Dense(); }, [&] { work.Gated(); });
    rates.dense = std::max(rates.dense, tokens / again.first);
    rates.gated = tokens / again.second;
  }
  return rates;
}

double FlopsPerToken(const ModelConfig& config, std::int64_t context) {
  return 6.0 * static_cast<double>(config.ParameterCount()) +
         12.0 * static_cast<double>(config.layers * config.width * context);
}

}  // namespace clearhead
