// SPDX-License-Identifier: MIT
#include "train/step.h"

#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "model/run.h"

namespace clearhead {

// Few pieces, because the gradient of the output matrix is read and written once per piece;
// bounded, because a row of GPT-2's logits is 200 KB.
std::int64_t LogitRows(std::int64_t rows) { return std::min<std::int64_t>(rows, 1024); }

namespace {

Keep KeepOf(const StepShape& shape) { return shape.recompute ? Keep::kInputs : Keep::kAll; }

// Of one pass, once the shape is known to be possible.
std::int64_t Rows(const ModelConfig& config, const StepShape& shape) {
  CheckStepShape(config, shape);
  return shape.batch * shape.context;
}

}  // namespace

std::int64_t TokensPerStep(const StepShape& shape, std::int64_t steps) {
  for (const auto& [what, value] : {std::pair{"batch", shape.batch},
                                    {"context", shape.context},
                                    {"accumulation", shape.accumulation}}) {
    if (value < 1) Fail("a {} of {} was asked for; at least 1 is needed", what, value);
  }
  CheckedProduct("steps x batch x accumulation x context",
                 {steps, shape.batch, shape.accumulation, shape.context});
  return CheckedProduct("batch x accumulation x context",
                        {shape.batch, shape.accumulation, shape.context});
}

void CheckStepShape(const ModelConfig& config, const StepShape& shape, std::int64_t steps) {
  TokensPerStep(shape, steps);
  if (shape.context > config.positions) {
    Fail("a context of {} was asked for, but the model has {} positions", shape.context,
         config.positions);
  }
}

TrainStep::TrainStep(const ModelConfig& config, const StepShape& shape)
    : shape_(shape),
      activations_(config, shape.batch, shape.context, KeepOf(shape),
                   LogitRows(Rows(config, shape))),
      inputs_(static_cast<std::size_t>(shape.batch * shape.context)),
      targets_(inputs_.size()) {
  if (shape.bf16) packed_ = std::make_unique<PackedWeights>();
}

StepResult TrainStep::Gradients(Optimizer& optimizer, Batches& batches, std::int64_t first_sample) {
  if (packed_) packed_->Pack(optimizer.model());
  const Pass pass{.model = optimizer.model(),
                  .batch = shape_.batch,
                  .length = shape_.context,
                  .packed = packed_.get()};
  StepResult result;
  const double share = 1.0 / static_cast<double>(shape_.accumulation);
  for (std::int64_t part = 0; part < shape_.accumulation; ++part) {
    batches.Fill(first_sample + part * shape_.batch, shape_.batch, inputs_.data(), targets_.data());
    result.loss +=
        share * ForwardBackward(pass, inputs_.data(), targets_.data(), static_cast<float>(share),
                                activations_, &optimizer.gradients(), &scratch_);
  }
  result.gradient_norm = optimizer.GradientNorm();
  return result;
}

std::vector<MemoryItem> TrainStep::MemoryPlan(const ModelConfig& config, const StepShape& shape) {
  const std::int64_t parameters = config.ParameterCount();
  std::vector<MemoryItem> items = {
      {"weights", parameters * 4}, {"gradients", parameters * 4}, {"moments", parameters * 8}};
  if (shape.bf16) items.push_back({"packed bf16 weights", parameters * 4});
  for (MemoryItem& item : Activations::Plan(config, shape.batch, shape.context, KeepOf(shape),
                                            LogitRows(Rows(config, shape)))) {
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace clearhead
