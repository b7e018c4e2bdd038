// SPDX-License-Identifier: MIT
#include "train/step.h"

#include <algorithm>
#include <optional>

#include "core/checked.h"
#include "core/error.h"
#include "model/run.h"
#include "train/rank_batch.h"

namespace clearhead {

// Few pieces, because the gradient of the output matrix is read and written once per piece;
// bounded, because a row of GPT-2's logits is 200 KB.
std::int64_t LogitRows(std::int64_t rows) { return std::min<std::int64_t>(rows, 1024); }

namespace {

Keep KeepOf(const StepShape& shape) { return shape.recompute ? Keep::kInputs : Keep::kAll; }

// This rank's sequences of a pass, once the shape is known to be possible.
std::int64_t Batch(const ModelConfig& config, const StepShape& shape, const Communicator* ranks) {
  CheckStepShape(config, shape);
  return RankBatchOf(shape.batch, ranks).batch;
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

TrainStep::TrainStep(const ModelConfig& config, const StepShape& shape, Communicator* ranks)
    : shape_(shape),
      packing_(PackedInTraining(config, shape.bf16)),
      ranks_(ranks),
      activations_(config, Batch(config, shape, ranks), shape.context, KeepOf(shape),
                   LogitRows(Batch(config, shape, ranks) * shape.context)),
      inputs_(static_cast<std::size_t>(activations_.batch * shape.context)),
      targets_(inputs_.size()) {}

StepResult TrainStep::Gradients(Optimizer& optimizer, Batches& batches, std::int64_t first_sample) {
  const Model& model = optimizer.model();
  if (packing_) packed_.Pack(model, *packing_, PackedWays::kBoth);
  const RankBatch own = RankBatchOf(shape_.batch, ranks_);
  const Pass pass{.model = model,
                  .batch = own.batch,
                  .length = shape_.context,
                  .packed = packing_ ? &packed_ : nullptr};
  StepResult result;
  const double share = own.weight / static_cast<double>(shape_.accumulation);
  const GradientsReady ready = [&optimizer](std::int64_t layer) { optimizer.Completed(layer); };
  for (std::int64_t part = 0; part < shape_.accumulation; ++part) {
    batches.Fill(first_sample + part * shape_.batch + own.first, own.batch, inputs_.data(),
                 targets_.data());
    const bool last = part == shape_.accumulation - 1;
    result.loss +=
        share * ForwardBackward(pass, inputs_.data(), targets_.data(), static_cast<float>(share),
                                activations_, &optimizer.gradients(), &scratch_,
                                last ? ready : GradientsReady());
  }
  result.gradient_norm = optimizer.GradientNorm();
  result.broken_rank = SumOverRanks(ranks_, std::span(&result.loss, 1));
  return result;
}

std::vector<MemoryItem> TrainStep::MemoryPlan(const ModelConfig& config, const StepShape& shape,
                                              const Communicator* ranks) {
  const std::int64_t parameters = config.ParameterCount();
  const std::int64_t owned = ranks == nullptr ? parameters : ranks->Share(parameters).size();
  std::vector<MemoryItem> items = {
      {"weights", parameters * 4}, {"gradients", parameters * 4}, {"moments", owned * 8}};
  if (const std::optional<PackedFor> packed = PackedInTraining(config, shape.bf16)) {
    items.push_back({"packed weights", 2 * parameters * (*packed == PackedFor::kBf16 ? 2 : 4)});
  }
  const std::int64_t batch = Batch(config, shape, ranks);
  for (MemoryItem& item : Activations::Plan(config, batch, shape.context, KeepOf(shape),
                                            LogitRows(batch * shape.context))) {
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace clearhead
